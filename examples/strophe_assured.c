/* Send an event to the gateway's log exactly once, with libstrophe:
 *
 *     cc -o strophe_assured strophe_assured.c $(pkg-config --cflags --libs libstrophe)
 *     ./strophe_assured HOST PORT CA JID FOLDER MSGID TEXT < password.txt
 *
 * If it fails, call it again with the same words, as often as you like. MSGID is new for each
 * message, and JID has a resource that never changes. FOLDER remembers, in an empty file for each,
 * that the gateway holds the message (it must not be offered again) and that it is delivered.
 */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strophe.h>
#include <unistd.h>

#define QOS "urn:xmpp:qos"
#define TIME_LIMIT_S 60 /* of the whole call: SIGALRM ends it */

static const char *folder, *msg_id, *text;

static int on_answer(xmpp_conn_t *conn, xmpp_stanza_t *iq, void *userdata);

/* Send <iq type='set' to='DOMAIN'><NAME xmlns='urn:xmpp:qos' msgId='MSGID'>CONTENT</NAME></iq>. */
static void request(xmpp_conn_t *conn, const char *name, xmpp_stanza_t *content)
{
    xmpp_ctx_t *ctx = xmpp_conn_get_context(conn);
    xmpp_stanza_t *iq = xmpp_iq_new(ctx, "set", name), *step = xmpp_stanza_new(ctx);
    char *domain = xmpp_jid_domain(ctx, xmpp_conn_get_jid(conn));

    xmpp_stanza_set_to(iq, domain);
    xmpp_stanza_set_name(step, name);
    xmpp_stanza_set_ns(step, QOS);
    xmpp_stanza_set_attribute(step, "msgId", msg_id);
    if (content)
        xmpp_stanza_add_child_ex(step, content, 0);
    xmpp_stanza_add_child_ex(iq, step, 0);
    xmpp_id_handler_add(conn, on_answer, name, NULL); /* the iq's id is its name */
    xmpp_send(conn, iq);
    xmpp_stanza_release(iq);
    xmpp_free(ctx, domain);
}

/* <message><log id='Note'><message>TEXT</message></log></message> */
static xmpp_stanza_t *event(xmpp_ctx_t *ctx)
{
    xmpp_stanza_t *message = xmpp_message_new(ctx, NULL, NULL, NULL);
    xmpp_stanza_t *log = xmpp_stanza_new(ctx), *inner = xmpp_stanza_new(ctx);
    xmpp_stanza_t *content = xmpp_stanza_new(ctx);

    xmpp_stanza_set_ns(message, XMPP_NS_CLIENT);
    xmpp_stanza_set_name(log, "log");
    xmpp_stanza_set_ns(log, "urn:xmpp:eventlog");
    xmpp_stanza_set_attribute(log, "id", "Note");
    xmpp_stanza_set_name(inner, "message");
    xmpp_stanza_set_text(content, text);
    xmpp_stanza_add_child_ex(inner, content, 0);
    xmpp_stanza_add_child_ex(log, inner, 0);
    xmpp_stanza_add_child_ex(message, log, 0);
    return message;
}

static int is_done(const char *step)
{
    char path[PATH_MAX];

    snprintf(path, sizeof path, "%s/%s.%s", folder, msg_id, step);
    return access(path, F_OK) == 0;
}

/* Returns whether it is on disk, so that a power cut does not undo it. */
static int remember(const char *step)
{
    char path[PATH_MAX];
    int file, parent, done;

    snprintf(path, sizeof path, "%s/%s.%s", folder, msg_id, step);
    file = open(path, O_CREAT | O_WRONLY, 0600);
    parent = open(folder, O_RDONLY);
    done = file >= 0 && parent >= 0 && fsync(file) == 0 && fsync(parent) == 0;
    if (!done)
        perror(path);
    close(file);
    close(parent);
    return done;
}

static int on_answer(xmpp_conn_t *conn, xmpp_stanza_t *iq, void *userdata)
{
    const char *type = xmpp_stanza_get_type(iq), *name = xmpp_stanza_get_id(iq);

    (void)userdata;
    if (strcmp(type, "result") != 0) {
        xmpp_stanza_t *error = xmpp_stanza_get_child_by_name(iq, "error");
        xmpp_stanza_t *condition = error ? xmpp_stanza_get_children(error) : NULL;

        fprintf(stderr, "%s: %s\n", name, condition ? xmpp_stanza_get_name(condition) : "error");
        xmpp_disconnect(conn);
    } else if (strcmp(name, "assured") == 0 && remember("released"))
        request(conn, "deliver", NULL);
    else {
        if (strcmp(name, "deliver") == 0)
            remember("delivered");
        xmpp_disconnect(conn);
    }
    return 0;
}

static void on_connection(xmpp_conn_t *conn, xmpp_conn_event_t status, int error,
                          xmpp_stream_error_t *stream_error, void *userdata)
{
    xmpp_ctx_t *ctx = xmpp_conn_get_context(conn);

    (void)error, (void)stream_error, (void)userdata;
    if (status != XMPP_CONN_CONNECT)
        xmpp_stop(ctx);
    else if (is_done("released"))
        request(conn, "deliver", NULL);
    else
        request(conn, "assured", event(ctx));
}

static void run(char **argv, const char *password)
{
    xmpp_ctx_t *ctx = xmpp_ctx_new(NULL, xmpp_get_default_logger(XMPP_LEVEL_ERROR));
    xmpp_conn_t *conn = xmpp_conn_new(ctx);
    unsigned short port = (unsigned short)atoi(argv[2]);

    xmpp_conn_set_flags(conn, XMPP_CONN_FLAG_MANDATORY_TLS);
    xmpp_conn_set_cafile(conn, argv[3]);
    xmpp_conn_set_jid(conn, argv[4]);
    xmpp_conn_set_pass(conn, password);
    if (xmpp_connect_client(conn, argv[1], port, on_connection, NULL) == XMPP_EOK)
        xmpp_run(ctx);
    xmpp_conn_release(conn);
    xmpp_ctx_free(ctx);
}

int main(int argc, char **argv)
{
    char password[128];

    if (argc != 8 || !fgets(password, sizeof password, stdin)) {
        fprintf(stderr, "usage: %s HOST PORT CA JID FOLDER MSGID TEXT < password.txt\n", argv[0]);
        return 2;
    }
    password[strcspn(password, "\n")] = '\0';
    folder = argv[5], msg_id = argv[6], text = argv[7];
    alarm(TIME_LIMIT_S);
    xmpp_initialize();
    if (!is_done("delivered"))
        run(argv, password);
    xmpp_shutdown();
    puts(is_done("delivered") ? "delivered" : "not delivered: call it again");
    return !is_done("delivered");
}
