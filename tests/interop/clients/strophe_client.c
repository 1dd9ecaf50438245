/* A device on libstrophe that executes the commands on its standard input, line by line.
 *
 * It speaks the lines of tests/helpers/clients.py. libstrophe chooses the mechanism itself, the
 * strongest that is offered (EXTERNAL with a certificate), and the program writes which. Stream
 * management works without a request; its result is read from libstrophe's log. After a connection
 * was lost, it makes a new one with the old one's state. Usage:
 *
 *     strophe_client HOST PORT JID CAFILE starttls|direct MECHANISM [CERTIFICATE KEY]
 */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strophe.h>
#include <unistd.h>

#define QOS "urn:xmpp:qos"
#define LOG "urn:xmpp:eventlog"
#define DISCO "http://jabber.org/protocol/disco"
#define TIME_LIMIT_S 120 /* of the whole run: SIGALRM ends it */
#define ROUND_MS 10      /* that libstrophe waits for its socket before standard input is read */
#define RETRIES 500      /* connections tried after one was lost, a round apart */
#define LINE_BYTES 4096
#define WORDS 4 /* of a command: the last one is the rest of the line */

struct run {
    xmpp_ctx_t *ctx;
    xmpp_conn_t *conn;
    char **argv;
    char *domain;
    char mechanism[32];
    char query[128]; /* the last request, written with its answer */
    int resumed;
    int was_online;
    int quitting;
    int lost;
    int retries;
    int over;
};

/* ---- what libstrophe tells only its log ---- */

static void on_log(void *userdata, xmpp_log_level_t level, const char *area, const char *text)
{
    struct run *run = userdata;
    const char *mechanism = strstr(text, "mechanism=\"");

    fprintf(stderr, "%d %s %s\n", (int)level, area, text);
    if (strncmp(text, "SENT: <auth ", 12) == 0 && mechanism)
        sscanf(mechanism, "mechanism=\"%31[^\"]\"", run->mechanism);
    if (strncmp(text, "RECV: <resumed ", 15) == 0)
        run->resumed = 1;
    if (strncmp(text, "RECV: <enabled ", 15) == 0)
        printf("managed %s\n", strstr(text, " id=") ? "resumable" : "not-resumable");
    if (strncmp(text, "RECV: <failure ", 15) == 0)
        printf("failed %s\n", text + 6);
}

/* ---- small stanzas ---- */

static xmpp_stanza_t *element(struct run *run, const char *name, const char *ns)
{
    xmpp_stanza_t *stanza = xmpp_stanza_new(run->ctx);

    xmpp_stanza_set_name(stanza, name);
    if (ns)
        xmpp_stanza_set_ns(stanza, ns);
    return stanza;
}

static void put(xmpp_stanza_t *parent, xmpp_stanza_t *child)
{
    xmpp_stanza_add_child(parent, child);
    xmpp_stanza_release(child);
}

static void put_text(struct run *run, xmpp_stanza_t *parent, const char *name, const char *text)
{
    xmpp_stanza_t *child = element(run, name, NULL), *content = xmpp_stanza_new(run->ctx);

    xmpp_stanza_set_text(content, text);
    put(child, content);
    put(parent, child);
}

static void send_off(struct run *run, xmpp_stanza_t *stanza)
{
    xmpp_send(run->conn, stanza);
    xmpp_stanza_release(stanza);
}

static xmpp_stanza_t *log_element(struct run *run, const char *name, const char *text)
{
    xmpp_stanza_t *log = element(run, "log", LOG);

    xmpp_stanza_set_attribute(log, "id", name);
    put_text(run, log, "message", text);
    return log;
}

/* ---- answers ---- */

static void print_attributes(xmpp_stanza_t *answer, const char *label, const char *name,
                             const char *attribute, const char *second)
{
    xmpp_stanza_t *child = xmpp_stanza_get_children(xmpp_stanza_get_children(answer));

    printf("%s", label);
    for (; child; child = xmpp_stanza_get_next(child)) {
        const char *value = xmpp_stanza_get_attribute(child, attribute);
        const char *other = second ? xmpp_stanza_get_attribute(child, second) : NULL;

        if (value && strcmp(xmpp_stanza_get_name(child), name) == 0)
            printf(" %s%s%s", value, other ? ":" : "", other ? other : "");
    }
    printf("\n");
}

static const char *condition(xmpp_stanza_t *answer)
{
    xmpp_stanza_t *error = xmpp_stanza_get_child_by_name(answer, "error");
    xmpp_stanza_t *first = error ? xmpp_stanza_get_children(error) : NULL;

    return first ? xmpp_stanza_get_name(first) : "-";
}

static int on_answer(xmpp_conn_t *conn, xmpp_stanza_t *answer, void *userdata)
{
    struct run *run = userdata;
    const char *type = xmpp_stanza_get_type(answer);
    xmpp_stanza_t *child = xmpp_stanza_get_children(answer);

    (void)conn;
    if (!type || strcmp(type, "result") != 0)
        printf("refused %s %s\n", run->query, condition(answer));
    else if (strcmp(run->query, "ping") == 0)
        printf("pong\n");
    else if (strcmp(run->query, "info") == 0)
        print_attributes(answer, "features", "feature", "var", NULL);
    else if (strcmp(run->query, "items") == 0)
        print_attributes(answer, "items", "item", "jid", NULL);
    else if (strcmp(run->query, "roster") == 0)
        print_attributes(answer, "roster", "item", "jid", "subscription");
    else
        printf("answered %s %s\n", run->query, child ? xmpp_stanza_get_name(child) : "");
    return 0;
}

static void request(struct run *run, const char *type, xmpp_stanza_t *payload, const char *to)
{
    static unsigned number;
    char id[32];
    xmpp_stanza_t *iq;

    snprintf(id, sizeof id, "r%u", ++number);
    iq = xmpp_iq_new(run->ctx, type, id);
    if (to)
        xmpp_stanza_set_to(iq, to);
    put(iq, payload);
    xmpp_id_handler_add(run->conn, on_answer, id, run);
    send_off(run, iq);
}

static int on_message(xmpp_conn_t *conn, xmpp_stanza_t *message, void *userdata)
{
    struct run *run = userdata;
    char *body = xmpp_message_get_body(message);

    (void)conn;
    printf("message %s %s\n", xmpp_stanza_get_from(message), body ? body : "");
    if (body)
        xmpp_free(run->ctx, body);
    return 1;
}

static int on_presence(xmpp_conn_t *conn, xmpp_stanza_t *presence, void *userdata)
{
    const char *type = xmpp_stanza_get_type(presence);

    (void)conn;
    (void)userdata;
    printf("presence %s %s\n", xmpp_stanza_get_from(presence), type ? type : "available");
    return 1;
}

/* ---- commands ---- */

static void exchange(struct run *run, char **words)
{
    xmpp_stanza_t *payload = element(run, words[0], QOS);

    snprintf(run->query, sizeof run->query, "%s %s", words[0], words[1]);
    xmpp_stanza_set_attribute(payload, "msgId", words[1]);
    if (strcmp(words[0], "assured") == 0) {
        xmpp_stanza_t *message = element(run, "message", NULL);

        put(message, log_element(run, words[2], words[3]));
        put(payload, message);
    }
    request(run, "set", payload, run->domain);
}

static void send_message(struct run *run, const char *to, const char *body, xmpp_stanza_t *log)
{
    xmpp_stanza_t *message = xmpp_message_new(run->ctx, log ? "normal" : "chat", to, NULL);

    if (log)
        put(message, log);
    else
        xmpp_message_set_body(message, body);
    send_off(run, message);
    if (!log)
        printf("sent %s\n", to);
}

static void send_presence(struct run *run, const char *to, const char *type)
{
    xmpp_stanza_t *presence = xmpp_presence_new(run->ctx);

    if (*to)
        xmpp_stanza_set_to(presence, to);
    if (*type)
        xmpp_stanza_set_type(presence, type);
    send_off(run, presence);
}

static void run_command(struct run *run, char **words)
{
    const char *verb = words[0];

    snprintf(run->query, sizeof run->query, "%s", verb);
    if (strcmp(verb, "ping") == 0)
        request(run, "get", element(run, "ping", "urn:xmpp:ping"), run->domain);
    else if (strcmp(verb, "info") == 0)
        request(run, "get", element(run, "query", DISCO "#info"), run->domain);
    else if (strcmp(verb, "items") == 0)
        request(run, "get", element(run, "query", DISCO "#items"), run->domain);
    else if (strcmp(verb, "roster") == 0)
        request(run, "get", element(run, "query", "jabber:iq:roster"), NULL);
    else if (strcmp(verb, "presence") == 0)
        send_presence(run, words[1], words[2]);
    else if (strcmp(verb, "log") == 0)
        send_message(run, run->domain, NULL, log_element(run, words[1], words[2]));
    else if (strcmp(verb, "message") == 0)
        send_message(run, words[1], words[2], NULL);
    else if (strcmp(verb, "quit") == 0) {
        run->quitting = 1;
        xmpp_disconnect(run->conn);
    } else
        exchange(run, words);
}

/* How many words come before the rest of the line, which is one word with spaces. */
static int single_words(const char *verb)
{
    return strcmp(verb, "assured") == 0 ? 3 : strcmp(verb, "presence") == 0 ? 3 : 2;
}

static void run_line(struct run *run, char *line)
{
    static char nothing[] = "";
    char *words[WORDS + 1] = {nothing, nothing, nothing, nothing, nothing}, *rest = line;
    int count = 0;

    line[strcspn(line, "\n")] = '\0';
    words[count++] = strsep(&rest, " ");
    while (rest && count < single_words(words[0]))
        words[count++] = strsep(&rest, " ");
    if (rest)
        words[count] = rest;
    run_command(run, words);
}

/* Unbuffered, so that poll tells of every line that waits. Returns 0 at the end of input. */
static int read_commands(struct run *run)
{
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    char line[LINE_BYTES];

    while (!run->lost && poll(&input, 1, 0) > 0) {
        if (!fgets(line, sizeof line, stdin))
            return 0;
        run_line(run, line);
    }
    return 1;
}

/* ---- connection ---- */

static void on_connection(xmpp_conn_t *conn, xmpp_conn_event_t event, int error,
                          xmpp_stream_error_t *stream_error, void *userdata)
{
    struct run *run = userdata;

    if (event == XMPP_CONN_CONNECT) {
        run->was_online = 1;
        if (run->resumed) {
            printf("resumed %s\n", xmpp_conn_get_bound_jid(conn));
            return;
        }
        xmpp_handler_add(conn, on_message, NULL, "message", NULL, run);
        xmpp_handler_add(conn, on_presence, NULL, "presence", NULL, run);
        printf("online %s %s\n", xmpp_conn_get_bound_jid(conn), run->mechanism);
        return;
    }
    if (stream_error)
        printf("failed stream %s\n", stream_error->text ? stream_error->text : "-");
    if (!run->was_online)
        printf("failed connection %d\n", error);
    run->over = run->quitting || stream_error || !run->was_online;
    run->lost = !run->over;
}

static int start(struct run *run, xmpp_sm_state_t *state)
{
    char **argv = run->argv;
    int direct = strcmp(argv[5], "direct") == 0;

    run->conn = xmpp_conn_new(run->ctx);
    xmpp_conn_set_flags(run->conn,
                        direct ? XMPP_CONN_FLAG_LEGACY_SSL : XMPP_CONN_FLAG_MANDATORY_TLS);
    xmpp_conn_set_cafile(run->conn, argv[4]);
    xmpp_conn_set_jid(run->conn, argv[3]);
    if (argv[7])
        xmpp_conn_set_client_cert(run->conn, argv[7], argv[8]);
    else
        xmpp_conn_set_pass(run->conn, getenv("CLIENT_PASSWORD"));
    if (state) {
        xmpp_conn_set_sm_state(run->conn, state);
        xmpp_handler_add(run->conn, on_message, NULL, "message", NULL, run);
        xmpp_handler_add(run->conn, on_presence, NULL, "presence", NULL, run);
    }
    return xmpp_connect_client(run->conn, argv[1], (unsigned short)atoi(argv[2]), on_connection,
                               run) == XMPP_EOK;
}

static int start_again(struct run *run)
{
    xmpp_sm_state_t *state = xmpp_conn_get_sm_state(run->conn);

    if (run->was_online)
        printf("cut\n");
    run->was_online = run->lost = run->resumed = 0;
    xmpp_conn_release(run->conn);
    return ++run->retries < RETRIES && start(run, state);
}

int main(int argc, char **argv)
{
    struct run run = {.argv = argv};
    xmpp_log_t log = {on_log, &run};
    int going;

    if (argc != 7 && argc != 9) {
        fprintf(stderr, "usage: %s HOST PORT JID CAFILE TRANSPORT MECHANISM [CERT KEY]\n", argv[0]);
        return 2;
    }
    alarm(TIME_LIMIT_S);
    setvbuf(stdout, NULL, _IOLBF, 0);
    setvbuf(stdin, NULL, _IONBF, 0);
    signal(SIGPIPE, SIG_IGN); /* OpenSSL writes to a socket that the gateway has closed */
    xmpp_initialize();
    run.ctx = xmpp_ctx_new(NULL, &log);
    run.domain = xmpp_jid_domain(run.ctx, argv[3]);
    going = start(&run, NULL);
    while (going && !run.over) {
        xmpp_run_once(run.ctx, ROUND_MS);
        going = read_commands(&run);
        if (run.lost)
            going = going && start_again(&run);
    }
    xmpp_free(run.ctx, run.domain);
    xmpp_conn_release(run.conn);
    xmpp_ctx_free(run.ctx);
    xmpp_shutdown();
    return run.quitting ? 0 : 1;
}
