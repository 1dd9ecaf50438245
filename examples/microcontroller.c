/* A device without an XMPP library: send a reading exactly once, then obey commands until `stop`.
 *
 *     cc -o microcontroller microcontroller.c -lexpat
 *     mkfifo wire
 *     ./microcontroller gw.example UUID STATE 21.5 < wire | openssl s_client -quiet \
 *         -connect HOST:5223 -verify_hostname gw.example -verify_return_error \
 *         -CAfile ca.pem -cert cert.pem -key key.pem > wire
 *
 * docs/how-to/esp32.md explains the protocol. The four functions that come first are for the
 * platform: on an ESP32 they call esp_tls_conn_read, esp_tls_conn_write, nvs_get_blob and
 * nvs_set_blob. When the connection is lost, it ends with status 1: connect and call it again.
 */
#include <expat.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define QOS "urn:xmpp:qos"
#define ID_BYTES 160
#define TEXT_BYTES 256
#define PIECE_BYTES 256 /* that the parser gets at once: one by one, a long tag takes it long */
#define HELD 4          /* received messages of level 2 that are remembered */

struct held {
    char from[ID_BYTES], msg_id[ID_BYTES], text[TEXT_BYTES];
    int done;
};

static struct {
    unsigned number; /* of the message that is sent, from 1 */
    int waiting;     /* it is not delivered yet */
    int released;    /* the gateway holds it: it must not be offered again */
    double reading;
    struct held held[HELD]; /* the newest is first */
} state;

static const char *domain, *path;
static int stopped;

/* ---- the platform ---- */

static int receive(void)
{
    return getchar(); /* the next byte, or EOF when the connection is lost */
}

static void transmit(const char *bytes, size_t length)
{
    fwrite(bytes, 1, length, stdout);
    fflush(stdout);
}

static void load(void)
{
    FILE *file = fopen(path, "rb");

    if (!file || fread(&state, sizeof state, 1, file) != 1)
        memset(&state, 0, sizeof state);
    if (file)
        fclose(file);
}

/* Returns when the state is on disk: what depends on it is sent afterwards. */
static void save(void)
{
    char new[1024];
    FILE *file;

    snprintf(new, sizeof new, "%s.new", path);
    file = fopen(new, "wb");
    if (!file || fwrite(&state, sizeof state, 1, file) != 1 || fflush(file) != 0 ||
        fsync(fileno(file)) != 0 || fclose(file) != 0 || rename(new, path) != 0) {
        perror(path);
        exit(1);
    }
}

/* ---- reading: one stanza at a time ---- */

static struct {
    char name[64], type[16], id[ID_BYTES], from[ID_BYTES];
    char child[128], msg_id[ID_BYTES]; /* the first child's */
    char body[TEXT_BYTES];
    int too_long; /* something did not fit */
} stanza;

static int depth, in_body, complete, ended;

static void append(char *to, size_t size, const char *text, size_t length)
{
    size_t used = strlen(to), room = size - 1 - used;

    stanza.too_long |= length > room;
    strncat(to, text, length < room ? length : room);
}

#define COPY(field, text) append(stanza.field, sizeof stanza.field, text, strlen(text))

/* Names are `NAMESPACE NAME`. */
static void on_start(void *data, const char *name, const char **attributes)
{
    (void)data;
    if (++depth == 2) {
        memset(&stanza, 0, sizeof stanza);
        COPY(name, name);
    } else if (depth == 3 && !stanza.child[0])
        COPY(child, name);
    in_body = strcmp(name, "jabber:client body") == 0;
    for (; *attributes; attributes += 2) {
        if (depth == 2 && strcmp(attributes[0], "type") == 0)
            COPY(type, attributes[1]);
        else if (depth == 2 && strcmp(attributes[0], "id") == 0)
            COPY(id, attributes[1]);
        else if (depth == 2 && strcmp(attributes[0], "from") == 0)
            COPY(from, attributes[1]);
        else if (depth == 3 && strcmp(attributes[0], "msgId") == 0 && !stanza.msg_id[0])
            COPY(msg_id, attributes[1]);
    }
}

static void on_text(void *data, const char *text, int length)
{
    (void)data;
    if (in_body)
        append(stanza.body, sizeof stanza.body, text, (size_t)length);
}

static void on_end(void *data, const char *name)
{
    (void)data, (void)name;
    in_body = 0;
    complete = --depth == 1;
    ended = depth == 0;
}

static XML_Parser parser;

/* A newer expat (2.6.0, or Debian's patched 2.5.0) holds back a tag that comes in pieces until more
 * bytes follow, but the gateway sends no more before it has the answer. An older expat has neither
 * this nor the function that switches it off: the weak symbol is NULL then. */
extern XML_Bool XML_SetReparseDeferralEnabled(XML_Parser, XML_Bool) __attribute__((weak));

static void new_parser(void)
{
    parser = XML_ParserCreateNS(NULL, ' ');
    if (XML_SetReparseDeferralEnabled)
        XML_SetReparseDeferralEnabled(parser, XML_FALSE);
    XML_SetElementHandler(parser, on_start, on_end);
    XML_SetCharacterDataHandler(parser, on_text);
}

static void next_stanza(void)
{
    char piece[PIECE_BYTES];
    int length = 0;

    for (complete = 0; !complete;) {
        int byte = receive();

        piece[length++] = (char)byte;
        if (byte != EOF && byte != '>' && length < PIECE_BYTES)
            continue;
        if (byte == EOF || XML_Parse(parser, piece, length, 0) != XML_STATUS_OK || ended) {
            fprintf(stderr, "the connection is lost\n");
            exit(1);
        }
        length = 0;
    }
}

static int is(const char *name, const char *child)
{
    return strcmp(stanza.name, name) == 0 && (!child || strcmp(stanza.child, child) == 0);
}

/* ---- writing: a stanza is built, then transmitted in one piece ---- */

static char built[3072]; /* three identifiers of which each character is escaped, and a template */

static void add(const char *format, ...)
{
    size_t used = strlen(built);
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(built + used, sizeof built - used, format, arguments);
    va_end(arguments);
}

static void add_text(const char *text)
{
    for (; *text; text++)
        add(strchr("&<>'\"", *text) ? "&#%d;" : "%c", *text);
}

static void send_built(void)
{
    transmit(built, strlen(built));
    built[0] = '\0';
}

static void begin_answer(const char *type)
{
    add("<iq type='%s' id='", type);
    add_text(stanza.id);
    add("' to='");
    add_text(stanza.from);
    add("'>");
}

static void end_answer(const char *content)
{
    add("%s</iq>", content);
    send_built();
}

static void refuse(const char *type, const char *condition)
{
    begin_answer("error");
    add("<error type='%s'><%s xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/></error>", type,
        condition);
    end_answer("");
}

/* ---- receiving ---- */

/* The work of the device. It is repeated if the power is cut before the state is saved. */
static void obey(const char *command)
{
    fprintf(stderr, "command: %s\n", command);
    stopped = strcmp(command, "stop") == 0;
}

static struct held *find(void)
{
    for (struct held *one = state.held; one < state.held + HELD; one++)
        if (one->from[0] && strcmp(one->from, stanza.from) == 0 &&
            strcmp(one->msg_id, stanza.msg_id) == 0)
            return one;
    return NULL;
}

static void on_assured(void)
{
    struct held *one = find(), *last = state.held + HELD - 1;

    if (!one || one->done) {
        if (last->from[0] && !last->done)
            return refuse("wait", "resource-constraint");
        memmove(state.held + 1, state.held, sizeof *one * (HELD - 1));
        strcpy(state.held->from, stanza.from);
        strcpy(state.held->msg_id, stanza.msg_id);
        strcpy(state.held->text, stanza.body);
        state.held->done = 0;
        save();
    }
    begin_answer("result");
    add("<received xmlns='" QOS "' msgId='");
    add_text(stanza.msg_id);
    end_answer("'/>");
}

static void on_deliver(void)
{
    struct held *one = find();

    if (!one)
        return refuse("cancel", "item-not-found");
    if (!one->done) {
        obey(one->text);
        one->done = 1;
        save();
    }
    begin_answer("result");
    end_answer("");
}

static void handle(void)
{
    if (is("jabber:client message", NULL) && strcmp(stanza.type, "error") != 0 &&
        stanza.body[0] && !stanza.too_long)
        obey(stanza.body);
    if (!is("jabber:client iq", NULL) ||
        (strcmp(stanza.type, "get") != 0 && strcmp(stanza.type, "set") != 0))
        return;
    if (stanza.too_long)
        refuse("cancel", "not-acceptable");
    else if (is("jabber:client iq", QOS " assured"))
        on_assured();
    else if (is("jabber:client iq", QOS " deliver"))
        on_deliver();
    else if (is("jabber:client iq", QOS " acknowledged")) {
        obey(stanza.body);
        begin_answer("result");
        end_answer("");
    } else if (is("jabber:client iq", "http://jabber.org/protocol/disco#info query")) {
        begin_answer("result");
        end_answer("<query xmlns='http://jabber.org/protocol/disco#info'>"
                   "<identity category='client' type='bot'/>"
                   "<feature var='http://jabber.org/protocol/disco#info'/>"
                   "<feature var='" QOS "'/></query>");
    } else
        refuse("cancel", "service-unavailable");
}

/* ---- sending ---- */

/* Wait for the answer to the message that is sent, and handle what comes before it. */
static void expect_result(void)
{
    char id[16];

    snprintf(id, sizeof id, "%u", state.number);
    for (next_stanza();; next_stanza()) {
        int answers = is("jabber:client iq", NULL) && strcmp(stanza.id, id) == 0 &&
                      strcmp(stanza.from, domain) == 0;

        if (answers && strcmp(stanza.type, "result") == 0)
            return;
        if (answers && strcmp(stanza.type, "error") == 0) {
            fprintf(stderr, "message %u is refused\n", state.number);
            exit(1); /* if its type is `wait`, call again later; else, give the message up */
        }
        handle();
    }
}

static void deliver(void)
{
    if (!state.released) {
        add("<iq type='set' id='%u' to='%s'><assured xmlns='" QOS "' msgId='%u'>", state.number,
            domain, state.number);
        add("<message xmlns='jabber:client'><json xmlns='urn:xmpp:json:0'>{\"temp\": %.1f}</json>"
            "</message></assured></iq>",
            state.reading);
        send_built();
        expect_result();
        state.released = 1;
        save();
    }
    add("<iq type='set' id='%u' to='%s'><deliver xmlns='" QOS "' msgId='%u'/></iq>", state.number,
        domain, state.number);
    send_built();
    expect_result();
    state.waiting = 0;
    save();
    fprintf(stderr, "message %u is delivered\n", state.number);
}

static void log_in(const char *uuid)
{
    add("<?xml version='1.0'?><stream:stream to='%s' version='1.0' xmlns='jabber:client'"
        " xmlns:stream='http://etherx.jabber.org/streams'>",
        domain);
    add("<authenticate xmlns='urn:xmpp:sasl:2' mechanism='EXTERNAL'>"
        "<initial-response>=</initial-response><user-agent id='%s'/>"
        "<bind xmlns='urn:xmpp:bind:0'><tag>fw</tag></bind></authenticate>",
        uuid);
    send_built();
    next_stanza(); /* the features */
    next_stanza();
    if (!is("urn:xmpp:sasl:2 success", NULL)) {
        fprintf(stderr, "the gateway refuses the certificate\n");
        exit(1);
    }
    next_stanza(); /* the features after the log-in */
}

int main(int argc, char **argv)
{
    if (argc < 4) {
        fprintf(stderr, "usage: %s DOMAIN UUID STATE [READING]\n", argv[0]);
        return 2;
    }
    domain = argv[1], path = argv[3];
    new_parser();
    load();
    log_in(argv[2]);
    if (state.waiting)
        deliver(); /* what an earlier call has begun */
    if (argc > 4) {
        state.number++;
        state.waiting = 1;
        state.released = 0;
        state.reading = atof(argv[4]);
        save();
        deliver();
    }
    add("<presence/>");
    send_built();
    while (!stopped) {
        next_stanza();
        handle();
    }
    add("</stream:stream>");
    send_built();
    return 0;
}
