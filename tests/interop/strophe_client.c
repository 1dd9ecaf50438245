/* A device on libstrophe: an XMPP implementation that shares no code with this project.
 *
 * It connects over STARTTLS with the certificate verified, logs in, binds the resource of its JID,
 * and walks through the steps of the table below, one request at a time, printing one line a step.
 * Each exchange is made twice, as after a lost answer. It has no outbox and retries nothing.
 *
 * Usage: strophe_client HOST PORT JID CAFILE MSGID, the password in $STROPHE_PASSWORD.
 * Exit status: 0 all steps done, 1 not, 2 wrong usage.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strophe.h>
#include <unistd.h>

#define QOS "urn:xmpp:qos"
#define TIME_LIMIT_S 30 /* of the whole run: SIGALRM ends it */

struct run {
    xmpp_ctx_t *ctx;
    xmpp_conn_t *conn;
    const char *msg_id;
    size_t step;
    int done;
};

typedef int (*answer_check)(const struct run *run, xmpp_stanza_t *answer);

struct step {
    const char *name;
    const char *type;
    const char *payload; /* `%s` is the msgId */
    answer_check accept;
};

static int any_result(const struct run *run, xmpp_stanza_t *answer)
{
    (void)run;
    (void)answer;
    return 1;
}

static int empty_result(const struct run *run, xmpp_stanza_t *answer)
{
    (void)run;
    return xmpp_stanza_get_children(answer) == NULL;
}

static int is_received(const struct run *run, xmpp_stanza_t *answer)
{
    xmpp_stanza_t *received = xmpp_stanza_get_child_by_name(answer, "received");
    const char *id = received ? xmpp_stanza_get_attribute(received, "msgId") : NULL;
    const char *ns = received ? xmpp_stanza_get_ns(received) : NULL;

    return id && ns && strcmp(id, run->msg_id) == 0 && strcmp(ns, QOS) == 0;
}

/* Prints what is advertised, for the test to compare, and wants the QoS feature among it. */
static int has_qos(const struct run *run, xmpp_stanza_t *answer)
{
    xmpp_stanza_t *query = xmpp_stanza_get_child_by_name(answer, "query");
    xmpp_stanza_t *child = query ? xmpp_stanza_get_children(query) : NULL;
    int found = 0;

    (void)run;
    for (; child; child = xmpp_stanza_get_next(child)) {
        const char *name = xmpp_stanza_get_name(child);
        const char *var = xmpp_stanza_get_attribute(child, "var");

        if (!name || !var || strcmp(name, "feature") != 0)
            continue;
        printf("feature %s\n", var);
        found = found || strcmp(var, QOS) == 0;
    }
    return found;
}

#define ASSURED                                                                               \
    "<assured xmlns='" QOS "' msgId='%s'><message>"                                           \
    "<log xmlns='urn:xmpp:eventlog' id='pump.start' level='Minor' type='Warning'"             \
    " timestamp='2024-02-29T12:00:00Z'><message>dry &lt;run&gt; of pump 1</message>"          \
    "<tag name='flow' value='12.5' type='xs:double'/></log></message></assured>"
#define DELIVER "<deliver xmlns='" QOS "' msgId='%s'/>"

static const struct step STEPS[] = {
    {"ping", "get", "<ping xmlns='urn:xmpp:ping'/>", any_result},
    {"disco", "get", "<query xmlns='http://jabber.org/protocol/disco#info'/>", has_qos},
    {"assured", "set", ASSURED, is_received},
    {"assured-again", "set", ASSURED, is_received},
    {"deliver", "set", DELIVER, empty_result},
    {"deliver-again", "set", DELIVER, empty_result},
};
#define STEP_COUNT (sizeof STEPS / sizeof STEPS[0])

static int on_answer(xmpp_conn_t *conn, xmpp_stanza_t *answer, void *userdata);

static void offer(struct run *run)
{
    const struct step *step = &STEPS[run->step];
    char id[32], payload[1024];
    xmpp_stanza_t *iq, *child;
    char *domain = xmpp_jid_domain(run->ctx, xmpp_conn_get_jid(run->conn));

    snprintf(id, sizeof id, "step-%zu", run->step);
    snprintf(payload, sizeof payload, step->payload, run->msg_id);
    iq = xmpp_iq_new(run->ctx, step->type, id);
    xmpp_stanza_set_to(iq, domain);
    child = xmpp_stanza_new_from_string(run->ctx, payload);
    xmpp_stanza_add_child(iq, child);
    xmpp_id_handler_add(run->conn, on_answer, id, run);
    xmpp_send(run->conn, iq);
    xmpp_stanza_release(child);
    xmpp_stanza_release(iq);
    xmpp_free(run->ctx, domain);
}

static int on_answer(xmpp_conn_t *conn, xmpp_stanza_t *answer, void *userdata)
{
    struct run *run = userdata;
    const struct step *step = &STEPS[run->step];
    const char *type = xmpp_stanza_get_type(answer);

    if (!type || strcmp(type, "result") != 0 || !step->accept(run, answer)) {
        char *text = NULL;
        size_t length = 0;

        xmpp_stanza_to_text(answer, &text, &length);
        printf("refused %s: %s\n", step->name, text ? text : "");
        xmpp_free(run->ctx, text);
        xmpp_disconnect(conn);
        return 0;
    }
    printf("done %s\n", step->name);
    run->step += 1;
    if (run->step < STEP_COUNT) {
        offer(run);
    } else {
        run->done = 1;
        xmpp_disconnect(conn);
    }
    return 0;
}

static void on_connection(xmpp_conn_t *conn, xmpp_conn_event_t event, int error,
                          xmpp_stream_error_t *stream_error, void *userdata)
{
    struct run *run = userdata;

    if (event == XMPP_CONN_CONNECT) {
        printf("secured %d\n", xmpp_conn_is_secured(conn));
        printf("bound %s\n", xmpp_conn_get_bound_jid(conn));
        offer(run);
        return;
    }
    printf("disconnected error=%d stream=%s\n", error,
           stream_error && stream_error->text ? stream_error->text : "-");
    xmpp_stop(run->ctx);
}

int main(int argc, char **argv)
{
    struct run run = {0};
    const char *password = getenv("STROPHE_PASSWORD");
    int status;

    if (argc != 6 || !password) {
        fprintf(stderr, "usage: STROPHE_PASSWORD=... %s HOST PORT JID CAFILE MSGID\n", argv[0]);
        return 2;
    }
    alarm(TIME_LIMIT_S);
    setvbuf(stdout, NULL, _IOLBF, 0);
    xmpp_initialize();
    run.ctx = xmpp_ctx_new(NULL, xmpp_get_default_logger(XMPP_LEVEL_DEBUG));
    run.conn = xmpp_conn_new(run.ctx);
    run.msg_id = argv[5];
    xmpp_conn_set_flags(run.conn, XMPP_CONN_FLAG_MANDATORY_TLS);
    xmpp_conn_set_cafile(run.conn, argv[4]);
    xmpp_conn_set_jid(run.conn, argv[3]);
    xmpp_conn_set_pass(run.conn, password);
    status = xmpp_connect_client(run.conn, argv[1], (unsigned short)atoi(argv[2]),
                                 on_connection, &run);
    if (status == XMPP_EOK)
        xmpp_run(run.ctx);
    xmpp_conn_release(run.conn);
    xmpp_ctx_free(run.ctx);
    xmpp_shutdown();
    return run.done ? 0 : 1;
}
