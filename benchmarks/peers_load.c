/* Load generator: many connections in one thread, each with exchanges in flight, over epoll.
 *
 * Usage: peers_load NAME=VALUE..., with the names in `options` below. Protocols:
 *   xmpp     the gateway: `assured`, `received`, `deliver`, empty result (PROTOCOL: urn:xmpp:qos)
 *   pubsub   an XMPP server: publish an item to a node, result
 *   mqtt     MQTT 3.1.1 or 5.0: a retained PUBLISH at QoS 0, 1 or 2, until it is acknowledged; at
 *            QoS 0, PINGRESP answers for all that a connection has sent before its PINGREQ
 *   nats     NATS JetStream: publish to a stream, its acknowledgement
 *   amqp     AMQP 0.9.1 (RabbitMQ): publish a persistent message to a durable quorum queue, its
 *            confirmation
 * Each connection logs in to an account of its own, sensor0000 and so on, all with one password.
 * XMPP uses SASL PLAIN where the server offers it, else SCRAM-SHA-256. With tls=1, XMPP uses
 * STARTTLS and MQTT begins with TLS; the certificate is not verified. Every answer must be the
 * expected one.
 *
 * With mqtt, a subscriber then counts the messages that the server has taken, by the numbers at
 * their ends. Its session is there throughout, connected (subscriber=live) or not (away), and must
 * get all messages; without a session (the default) it must get the last one of each connection,
 * because that is retained.
 *
 * Output: the line `measuring` after the warm-up, `measured` after the measurement, and at the end,
 * after the exchanges in flight are finished, a JSON object: exchanges and seconds of the
 * measurement, wrong
 * answers, processor seconds of this process, latency quantiles in seconds, all exchanges since the
 * start, how many messages the subscriber has not received, and how many again.
 *
 * With rate=N, the connections begin N exchanges a second together, in turn, whether the server is
 * fast or slow; an exchange that the one before it delays counts from when it was due. With list=1,
 * the object has all latencies by the local port of their connection.
 *
 * With hold=1, the line `connected` follows the logins, and exchanges begin when standard input has a
 * line. With restart=1, the exchanges go on until the server is killed; then the port of a new one is read
 * from standard input, which the subscriber asks for the messages that were acknowledged.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/ssl.h>

enum {
    MAX_WINDOW = 64,          /* exchanges in flight of one connection */
    BUFFER = 16 * 1024,       /* bytes of one read, of a partial answer, and of a request */
    EVENTS = 512,             /* sockets of one epoll_wait */
    DRAIN_SECONDS = 60,       /* time to finish the exchanges in flight */
    LOGIN_SECONDS = 60,       /* time for one answer of a login */
    SESSION_SECONDS = 3600,   /* expiry of an MQTT session */
    SHA256_BYTES = 32,
    ID_BYTES = 23,            /* of a message's id: see format_msg_id */
};

static struct {
    const char *protocol, *host, *domain, *to, *password, *body, *first, *subscriber, *topic;
    int port, connections, window, exchanges, tls, version, qos, restart, hold, list;
    double warm_up, seconds, silence, rate;
} plan = {.window = 1, .version = 4, .qos = 2, .subscriber = "", .topic = "state", .silence = 5};

static const struct option {
    const char *name;
    const char **text;
    int *integer;
    double *real;
} options[] = {
    {"protocol", .text = &plan.protocol},
    {"host", .text = &plan.host},               /* an IPv4 address */
    {"port", .integer = &plan.port},
    {"connections", .integer = &plan.connections},
    {"window", .integer = &plan.window},        /* exchanges in flight of each connection */
    {"exchanges", .integer = &plan.exchanges},  /* end after so many, if not 0 */
    {"tls", .integer = &plan.tls},
    {"warm_up", .real = &plan.warm_up},
    {"seconds", .real = &plan.seconds},
    {"password", .text = &plan.password},
    {"domain", .text = &plan.domain},           /* XMPP domain of the accounts */
    {"to", .text = &plan.to},                   /* XMPP address of requests, or AMQP queue */
    {"body", .text = &plan.body},               /* payload: of the message, the item, PUBLISH */
    {"first", .text = &plan.first},             /* that the first connection sends before: a stanza,
                                                   or the configuration of a NATS stream */
    {"version", .integer = &plan.version},      /* of MQTT: 4 (3.1.1) or 5 */
    {"qos", .integer = &plan.qos},              /* of MQTT */
    {"subscriber", .text = &plan.subscriber},   /* of MQTT: away, live or empty */
    {"topic", .text = &plan.topic},             /* of MQTT, behind the account's name */
    {"silence", .real = &plan.silence},         /* after which no more messages are expected */
    {"rate", .real = &plan.rate},               /* exchanges a second; 0: each follows another */
    {"list", .integer = &plan.list},
    {"restart", .integer = &plan.restart},
    {"hold", .integer = &plan.hold},
};

struct slot {                 /* an exchange in flight */
    uint32_t count;           /* number of the message in this slot */
    bool second;              /* the first answer has arrived */
    bool unanswered;
    double began;
    uint64_t tag;             /* of AMQP: the message's number in its channel */
    uint32_t acknowledged;    /* messages */
    uint32_t received;        /* messages, by the subscriber */
    uint32_t last_received;   /* number of a message */
};

struct connection {
    int socket, number;       /* no socket after a server was killed: -1 */
    int window;               /* exchanges in flight; the server can have a lower limit */
    bool must_ping;           /* messages were sent that PINGRESP is to answer for */
    SSL *tls;
    double due, free_at;      /* with `rate`: times of the next exchange, of the last answer */
    uint64_t last_tag;        /* of AMQP */
    size_t used;              /* bytes of a partial answer in `buffer` */
    char buffer[BUFFER];
    struct slot slots[MAX_WINDOW];
};

static struct connection *connections, subscriber;
static SSL_CTX *tls_context;
static uint32_t run;          /* random number that makes message ids unique */
static bool active = true;    /* a finished exchange is followed by a new one */
static bool ends_soon;        /* the server will be killed */
static unsigned long started, finished, wrong, in_flight;
static struct latency {
    float seconds;
    int connection;
} *latencies;                 /* of all finished exchanges since the warm-up */
static size_t latency_count, latency_room;
static char output[BUFFER];   /* what the connection that is being handled will send */
static size_t output_size;
static unsigned long received, repeated; /* messages of this run, by the subscriber */
static double last_received;

/* Helpers */

static void __attribute__((noreturn, format(printf, 1, 2))) fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fputs("peers_load: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    exit(1);
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static double processor_time(void) {
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static void put_latency(double seconds, int connection) {
    if (latency_count == latency_room) {
        latency_room = latency_room ? 2 * latency_room : 1 << 16;
        latencies = realloc(latencies, latency_room * sizeof *latencies);
        if (!latencies) fail("out of memory");
    }
    latencies[latency_count++] = (struct latency){seconds, connection};
}

/* Bytes in and out */

static void close_connection(struct connection *c) {
    if (c->tls) SSL_free(c->tls);
    close(c->socket);
    c->socket = -1;
}

/* Close a connection whose server was killed. */
static void lose(struct connection *c) {
    close_connection(c);
    for (int slot = 0; slot < c->window; slot++) in_flight -= c->slots[slot].unanswered;
}

static void write_output(struct connection *c) {
    long size = output_size;
    output_size = 0;
    if (!size || c->socket < 0) return;
    long sent = c->tls ? SSL_write(c->tls, output, size)
                       : send(c->socket, output, size, MSG_NOSIGNAL);
    if (sent == size) return;
    if (!ends_soon) fail("connection %d took %ld of %ld bytes", c->number, sent, size);
    lose(c);
}

/* Add to the output, which `flush` writes. */
static void send_all(struct connection *c, const void *data, size_t size) {
    if (output_size + size > BUFFER) write_output(c);
    memcpy(output + output_size, data, size);
    output_size += size;
}

static void flush(struct connection *c) {
    if (c->must_ping) send_all(c, "\xc0", 2); /* PINGREQ, with its length 0 */
    c->must_ping = false;
    write_output(c);
}

static void __attribute__((format(printf, 2, 3)))
send_text(struct connection *c, const char *format, ...) {
    char text[BUFFER];
    va_list arguments;
    va_start(arguments, format);
    int size = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (size >= BUFFER) fail("a request has %d bytes", size);
    send_all(c, text, size);
}

static void start_tls(struct connection *c) {
    c->tls = SSL_new(tls_context);
    SSL_set_fd(c->tls, c->socket);
    if (plan.domain) SSL_set_tlsext_host_name(c->tls, plan.domain);
    if (SSL_connect(c->tls) != 1)
        fail("TLS of connection %d: %s", c->number, ERR_error_string(ERR_get_error(), NULL));
}

/* Append what has arrived to the buffer; return false if there is nothing now. */
static bool read_some(struct connection *c) {
    size_t room = BUFFER - 1 - c->used;
    if (!room) fail("connection %d: an answer is too long", c->number);
    long size;
    if (c->tls) {
        size = SSL_read(c->tls, c->buffer + c->used, room);
        if (size <= 0 && SSL_get_error(c->tls, size) == SSL_ERROR_WANT_READ) return false;
    } else {
        size = recv(c->socket, c->buffer + c->used, room, 0);
        if (size < 0 && errno == EAGAIN) return false;
    }
    if (size <= 0) {
        if (!ends_soon) fail("the server closed connection %d: %.500s", c->number, c->buffer);
        lose(c);
        return false;
    }
    c->used += size;
    c->buffer[c->used] = 0;
    return true;
}

/* Return the size of the element at the start of a text, 0 if it is not complete. */
static size_t element_size(const char *text) {
    int depth = 0;
    for (const char *at = strchr(text, '<'); at; at = strchr(at, '<')) {
        bool closes = at[1] == '/';
        while (*++at != '>') {
            if (*at == '\'' || *at == '"') at = strchr(at + 1, *at);
            if (!at || !*at) return 0;
        }
        depth += closes ? -1 : at[-1] == '/' ? 0 : 1;
        if (depth <= 0) return at + 1 - text;
    }
    return 0;
}

/* Read one answer of a login, an element or, with `ending`, all up to that; it must contain `part`
 * and is in the buffer until the next read. */
static char *read_answer(struct connection *c, const char *part, const char *ending) {
    bool whole = false;
    flush(c);
    for (c->used = 0; !whole;) {
        if (!read_some(c)) fail("connection %d: no %s in time", c->number, part);
        size_t size = ending ? strlen(ending) : 0;
        whole = ending ? c->used >= size && !strcmp(c->buffer + c->used - size, ending)
                       : element_size(c->buffer);
    }
    c->used = 0;
    if (!strstr(c->buffer, part))
        fail("login of connection %d: no %s in %.500s", c->number, part, c->buffer);
    return c->buffer;
}

/* XMPP: login */

static char *open_stream(struct connection *c) {
    send_text(c,
              "<?xml version='1.0'?><stream:stream to='%s' version='1.0' xml:lang='en'"
              " xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams'>",
              plan.domain);
    return read_answer(c, "<stream:features", "</stream:features>");
}

static void encode_base64(char *out, const void *data, size_t size) {
    EVP_EncodeBlock((unsigned char *)out, data, size);
}

static void decode_base64(char *out, const char *text, size_t size) {
    int length = EVP_DecodeBlock((unsigned char *)out, (const unsigned char *)text, size);
    if (length < 0) fail("invalid base64: %.*s", (int)size, text);
    while (size && text[--size] == '=') length--;
    out[length] = 0;
}

static void hmac(unsigned char *out, const unsigned char *key, const char *text) {
    HMAC(EVP_sha256(), key, SHA256_BYTES, (const unsigned char *)text, strlen(text), out, NULL);
}

/* The password's key; the last one is kept, because many accounts have the same salt. */
static const unsigned char *salted_password(const char *salt64, int iterations) {
    static unsigned char key[SHA256_BYTES];
    static char known[256];
    char name[256], salt[256];
    if (snprintf(name, sizeof name, "%d %s", iterations, salt64) >= (int)sizeof name)
        fail("the salt is too long");
    if (strcmp(name, known)) {
        strcpy(known, name);
        decode_base64(salt, salt64, strlen(salt64));
        int size = strlen(salt64) / 4 * 3;
        for (const char *at = salt64 + strlen(salt64); *--at == '=';) size--;
        PKCS5_PBKDF2_HMAC(plan.password, -1, (unsigned char *)salt, size, iterations, EVP_sha256(),
                          SHA256_BYTES, key);
    }
    return key;
}

static void use_plain(struct connection *c) {
    char message[256], text[512];
    int size = snprintf(message, sizeof message, "%csensor%04d%c%s", 0, c->number, 0,
                        plan.password);
    encode_base64(text, message, size);
    send_text(c, "<auth xmlns='urn:ietf:params:xml:ns:xmpp-sasl' mechanism='PLAIN'>%s</auth>",
              text);
}

static void use_scram(struct connection *c) {
    char first[128], challenge[1024], unproved[512], text[2048], signed_[2048], proof64[64];
    char nonce[512], salt[256];
    int iterations;
    unsigned char client_key[SHA256_BYTES], stored_key[SHA256_BYTES], signature[SHA256_BYTES];
    snprintf(first, sizeof first, "n,,n=sensor%04d,r=%08xbench%04x", c->number, run, c->number);
    encode_base64(text, first, strlen(first));
    send_text(c,
              "<auth xmlns='urn:ietf:params:xml:ns:xmpp-sasl' mechanism='SCRAM-SHA-256'>%s</auth>",
              text);
    char *begin = strchr(read_answer(c, "<challenge", NULL), '>') + 1;
    size_t size = strcspn(begin, "<");
    if (size > 1024) fail("the challenge is too long");
    decode_base64(challenge, begin, size);
    if (sscanf(challenge, "r=%511[^,],s=%255[^,],i=%d", nonce, salt, &iterations) != 3)
        fail("unexpected challenge: %s", challenge);
    snprintf(unproved, sizeof unproved, "c=biws,r=%.400s", nonce);
    snprintf(signed_, sizeof signed_, "%s,%s,%s", first + 3, challenge, unproved);
    hmac(client_key, salted_password(salt, iterations), "Client Key");
    EVP_Digest(client_key, SHA256_BYTES, stored_key, NULL, EVP_sha256(), NULL);
    hmac(signature, stored_key, signed_);
    for (int i = 0; i < SHA256_BYTES; i++) client_key[i] ^= signature[i];
    encode_base64(proof64, client_key, SHA256_BYTES);
    size = snprintf(signed_, sizeof signed_, "%s,p=%s", unproved, proof64);
    encode_base64(text, signed_, size);
    send_text(c, "<response xmlns='urn:ietf:params:xml:ns:xmpp-sasl'>%s</response>", text);
}

static void login_xmpp(struct connection *c) {
    char *features = open_stream(c);
    if (plan.tls) {
        send_text(c, "<starttls xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>");
        read_answer(c, "<proceed", NULL);
        start_tls(c);
        features = open_stream(c);
    }
    if (strstr(features, ">PLAIN<")) use_plain(c);
    else use_scram(c);
    read_answer(c, "<success", NULL);
    open_stream(c);
    send_text(c,
              "<iq type='set' id='bind'><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'>"
              "<resource>fw</resource></bind></iq>");
    read_answer(c, "<jid>", NULL);
    if (plan.first && c->number == 0) {
        send_text(c, "%s", plan.first);
        read_answer(c, "<iq ", NULL);
    }
}

/* Exchanges, whatever the protocol */

static void begin(struct connection *c, struct slot *s);
static void send_step(struct connection *c, struct slot *s);

/* Go on after an answer: the next step, or the next exchange. */
static void advance(struct connection *c, struct slot *s, bool right, bool last) {
    if (right && !last) {
        s->second = true;
        send_step(c, s);
        return;
    }
    in_flight--;
    s->unanswered = false;
    if (right) {
        finished++;
        s->acknowledged++;
        put_latency(now() - s->began, c->number);
    } else {
        wrong++;
    }
    if (plan.rate) c->free_at = now();
    else if (active) begin(c, s);
}

static void report_wrong(const char *answer, size_t size) {
    if (!wrong) fprintf(stderr, "peers_load: wrong answer: %.*s\n", (int)size, answer);
}

/* XMPP: exchanges. The id of an iq is a letter for its step, two digits for its slot, its count. */

static void format_msg_id(char *out, struct connection *c, struct slot *s) {
    sprintf(out, "%08x-%04x%02x%08x", run, c->number, (int)(s - c->slots), s->count);
}

static void send_xmpp(struct connection *c, struct slot *s) {
    char msg_id[32];
    int slot = s - c->slots;
    format_msg_id(msg_id, c, s);
    if (s->second)
        send_text(c,
                  "<iq type='set' id='d%02x%08x' to='%s'><deliver xmlns='urn:xmpp:qos'"
                  " msgId='%s'/></iq>",
                  slot, s->count, plan.to, msg_id);
    else
        send_text(c,
                  "<iq type='set' id='a%02x%08x' to='%s'><assured xmlns='urn:xmpp:qos' msgId='%s'>"
                  "<message xmlns='jabber:client'>%s</message></assured></iq>",
                  slot, s->count, plan.to, msg_id, plan.body);
}

static void send_pubsub(struct connection *c, struct slot *s) {
    char msg_id[32];
    format_msg_id(msg_id, c, s);
    send_text(c,
              "<iq type='set' id='p%02x%08x' to='%s'>"
              "<pubsub xmlns='http://jabber.org/protocol/pubsub'><publish node='readings'>"
              "<item id='%s'>%s</item></publish></pubsub></iq>",
              (int)(s - c->slots), s->count, plan.to, msg_id, plan.body);
}

static size_t size_xmpp(const char *data, size_t size) {
    (void)size; /* the buffer ends with a zero byte */
    return element_size(data);
}

static void answer_xmpp(struct connection *c, const char *data, size_t size) {
    const char *tag_end = strchr(data, '>'), *id = strstr(data, " id=");
    char step, expected[32];
    unsigned slot, count;
    if (data[1] == '/' || !strncmp(data, "<stream:", 8))
        fail("the server ends the stream: %.*s", (int)size, data);
    if (!strncmp(data, "<message", 8) && memmem(data, tag_end - data, "'error'", 7)) {
        report_wrong(data, size); /* answered, and then not used */
        wrong++;
        return;
    }
    if (!id || id > tag_end || sscanf(id + 5, "%c%2x%8x", &step, &slot, &count) != 3) return;
    if (slot >= (unsigned)plan.window) return;
    struct slot *s = &c->slots[slot];
    if (count != s->count || s->second != (step == 'd')) { /* answered before */
        report_wrong(data, size);
        wrong++;
        return;
    }
    bool right = memmem(data, tag_end - data, "'result'", 8) != NULL;
    format_msg_id(expected, c, s);
    if (step == 'a')
        right = right && memmem(data, size, "<received ", 10)
                && memmem(data, size, expected, strlen(expected));
    else if (step == 'd')
        right = right && tag_end + 1 == data + size;
    if (!right) report_wrong(data, size);
    advance(c, s, right, step != 'a');
}

/* MQTT. The packet identifier of a message is its slot's number, from one. */

enum {
    CONNECT = 0x10, CONNACK = 0x20, PUBLISH = 0x30, PUBACK = 0x40, PUBREC = 0x50, PUBREL = 0x62,
    PUBCOMP = 0x70, SUBSCRIBE = 0x82, SUBACK = 0x90, PINGRESP = 0xd0,
};
enum { CONTENT = 512 };       /* bytes of an answer to a login */
enum { RETAIN = 0x01 };       /* a server saves no message that nobody is to get */
enum { SESSION_EXPIRY = 0x11, RECEIVE_MAXIMUM = 0x21, USER_PROPERTY = 0x26 }; /* properties */
enum { REFUSED = 0x80 };      /* the first reason code of a failure */

static unsigned char *put_number(unsigned char *at, uint32_t number, int bytes) {
    while (bytes--) *at++ = number >> 8 * bytes;
    return at;
}

static unsigned char *put_string(unsigned char *at, const char *text) {
    size_t size = strlen(text);
    return (unsigned char *)mempcpy(put_number(at, size, 2), text, size);
}

static bool has_properties(void) { return plan.version == 5; }

/* Read a number of variable length and move `at` behind it. */
static size_t get_length(const unsigned char **at) {
    size_t length = 0;
    for (int shift = 0; shift < 28; shift += 7) {
        length |= (size_t)(**at & 0x7f) << shift;
        if (!(*(*at)++ & 0x80)) break;
    }
    return length;
}

/* Send a packet whose content begins at `packet + 5`: the room for its fixed header. */
static void send_packet(struct connection *c, int type, unsigned char *packet, unsigned char *end) {
    size_t size = end - packet - 5, digits = size < 128 ? 1 : size < 16384 ? 2 : 3;
    unsigned char *start = packet + 4 - digits, *at = start;
    *at++ = type;
    for (size_t left = size; digits--; left >>= 7) *at++ = (left & 0x7f) | (digits ? 0x80 : 0);
    send_all(c, start, end - start);
}

static void send_acknowledgement(struct connection *c, int type, int identifier) {
    unsigned char packet[8];
    send_packet(c, type, packet, put_number(packet + 5, identifier, 2));
}

static size_t size_mqtt(const char *data, size_t size) {
    size_t digits = 1;
    while (digits < size && data[digits] & 0x80) digits++;
    if (digits >= size) return 0;
    const unsigned char *at = (const unsigned char *)data + 1;
    size_t whole = 1 + digits + get_length(&at);
    return whole <= size ? whole : 0;
}

static void answer_mqtt(struct connection *c, const char *data, size_t size);

/* Copy the beginning of the next packet of a type without its fixed header; handle all others. */
static void await_packet(struct connection *c, int type, unsigned char content[CONTENT]) {
    flush(c);
    for (bool found = false; !found;) {
        size_t used = 0, size;
        if (!read_some(c)) fail("connection %d: no packet %02x in time", c->number, type);
        while ((size = size_mqtt(c->buffer + used, c->used - used))) {
            const unsigned char *packet = (unsigned char *)c->buffer + used, *at = packet + 1;
            size_t length = get_length(&at);
            used += size;
            if (*packet == type) memcpy(content, at, length < CONTENT ? length : CONTENT);
            else answer_mqtt(c, (char *)packet, size);
            found = found || *packet == type;
        }
        c->used -= used;
        memmove(c->buffer, c->buffer + used, c->used + 1);
    }
}

/* Lower the window to the receive maximum of the server, if it has one. */
static void limit_window(struct connection *c, const unsigned char *at) {
    static const char sizes[256] = {[0x11] = 4, [0x13] = 2, [0x21] = 2, [0x22] = 2, [0x24] = 1,
                                    [0x25] = 1, [0x27] = 4, [0x28] = 1, [0x29] = 1, [0x2a] = 1};
    size_t size = get_length(&at);
    for (const unsigned char *end = at + size; at < end;) {
        int property = *at, value = at[1] << 8 | at[2]; /* or the length of a text */
        if (property == RECEIVE_MAXIMUM && value < c->window) c->window = value;
        at += 1 + (sizes[property] ? sizes[property] : 2 + value);
        if (property == USER_PROPERTY) at += 2 + (at[0] << 8 | at[1]); /* a second text */
    }
}

enum session {                /* MQTT 3.1.1 resumes a session if the next one is to be kept */
    TRANSIENT, NEW, RESUMED
};

/* Log in and return whether there was a session. */
static bool connect_mqtt(struct connection *c, const char *client, int account,
                         enum session session) {
    unsigned char packet[512], answer[CONTENT], *at = packet + 5;
    char name[16];
    if (plan.tls) start_tls(c);
    snprintf(name, sizeof name, "sensor%04d", account);
    at = put_string(at, "MQTT");
    *at++ = plan.version;
    bool is_new = session == TRANSIENT || (session == NEW && has_properties());
    *at++ = 0x80 | 0x40 | is_new << 1; /* with a name and password */
    at = put_number(at, 0, 2);  /* no keep-alive */
    if (has_properties()) {
        *at++ = 5;
        *at++ = SESSION_EXPIRY;
        at = put_number(at, session == TRANSIENT ? 0 : SESSION_SECONDS, 4);
    }
    at = put_string(put_string(put_string(at, client), name), plan.password);
    send_packet(c, CONNECT, packet, at);
    await_packet(c, CONNACK, answer);
    if (answer[1]) fail("connection %d is refused with code %d", c->number, answer[1]);
    if (has_properties()) limit_window(c, answer + 2);
    return answer[0];
}

/* The session outlasts the connection, because QoS 2 is exactly once with such sessions only. */
static void login_mqtt(struct connection *c) {
    char client[16];
    snprintf(client, sizeof client, "sensor%04d", c->number);
    connect_mqtt(c, client, c->number, NEW);
}

/* The identifier of an exchange's packets; the exchange before it on its slot has another one. */
static int packet_number(const struct connection *c, const struct slot *s) {
    return 1 + (s - c->slots) + c->window * (s->count & 1);
}

static void send_mqtt(struct connection *c, struct slot *s) {
    unsigned char packet[BUFFER], *at = packet + 5;
    char topic[256], msg_id[ID_BYTES + 1];
    if (s->second) {
        send_acknowledgement(c, PUBREL, packet_number(c, s));
        return;
    }
    snprintf(topic, sizeof topic, "sensor%04d/%s", c->number, plan.topic);
    at = put_string(at, topic);
    if (plan.qos) at = put_number(at, packet_number(c, s), 2);
    else c->must_ping = true;
    if (has_properties()) *at++ = 0;
    at = mempcpy(at, plan.body, strlen(plan.body));
    format_msg_id(msg_id, c, s);
    at = mempcpy(at, msg_id, ID_BYTES);
    send_packet(c, PUBLISH | plan.qos << 1 | RETAIN, packet, at);
}

/* Acknowledge a message, and count it if it is one of this run. */
static void take_message(struct connection *c, int flags, const unsigned char *at,
                         const unsigned char *end) {
    unsigned of_run, number, slot, count;
    char id[ID_BYTES + 1] = "";
    int qos = flags >> 1 & 3;
    at += 2 + (at[0] << 8 | at[1]);
    if (qos) {
        send_acknowledgement(c, qos == 1 ? PUBACK : PUBREC, at[0] << 8 | at[1]);
        at += 2;
    }
    if (has_properties()) {
        size_t size = get_length(&at);
        at += size;
    }
    if (end - at >= ID_BYTES) memcpy(id, end - ID_BYTES, ID_BYTES);
    if (sscanf(id, "%8x-%4x%2x%8x", &of_run, &number, &slot, &count) != 4 || of_run != run) return;
    if (number >= (unsigned)plan.connections || slot >= (unsigned)plan.window)
        fail("unexpected message %s", id);
    struct slot *s = &connections[number].slots[slot];
    last_received = now();
    if (count > s->last_received) s->received++, received++;
    else repeated++;
    s->last_received = count;
}

static void answer_mqtt(struct connection *c, const char *data, size_t size) {
    const unsigned char *at = (const unsigned char *)data, *end = at + size;
    int type = *at++, slot, number;
    get_length(&at);
    if ((type & 0xf0) == PUBLISH) {
        take_message(c, type, at, end);
        return;
    }
    if (type == PINGRESP) {
        for (slot = 0; slot < c->window; slot++)
            if (c->slots[slot].unanswered) advance(c, &c->slots[slot], true, true);
        return;
    }
    number = end - at < 2 ? 0 : at[0] << 8 | at[1];
    if (type == PUBREL) {
        send_acknowledgement(c, PUBCOMP, number);
        return;
    }
    if (number < 1 || number > 2 * c->window) fail("unexpected packet of type %02x", type);
    struct slot *s = &c->slots[(number - 1) % c->window];
    bool is_late = !s->unanswered || number != packet_number(c, s);
    int expected = plan.qos == 1 ? PUBACK : s->second ? PUBCOMP : PUBREC;
    bool right = type == expected && (end - at == 2 || at[2] < REFUSED);
    if (!right || is_late) report_wrong("a packet", 8);
    if (is_late) { /* answered before */
        wrong++;
        return;
    }
    advance(c, s, right, type != PUBREC);
}

/* NATS: lines of text. The subject of an answer tells its exchange, as an XMPP id does. */

static void login_nats(struct connection *c) {
    read_answer(c, "INFO ", "\r\n");
    send_text(c,
              "CONNECT {\"verbose\":false,\"pedantic\":false,\"user\":\"sensor%04d\","
              "\"pass\":\"%s\"}\r\nSUB answers.%08x.%04x.> 1\r\nPING\r\n",
              c->number, plan.password, run, c->number);
    read_answer(c, "PONG", "\r\n");
    if (c->number || !plan.first) return;
    send_text(c, "PUB $JS.API.STREAM.CREATE.%s answers.%08x.0000.first %zu\r\n%s\r\n", plan.to, run,
              strlen(plan.first), plan.first);
    read_answer(c, "\"config\"", "}\r\n");
}

static void send_nats(struct connection *c, struct slot *s) {
    char msg_id[32];
    int slot = s - c->slots;
    format_msg_id(msg_id, c, s);
    send_text(c, "PUB %s.sensor%04d answers.%08x.%04x.%02x%08x %zu\r\n%s%s\r\n", plan.to, c->number,
              run, c->number, slot, s->count, strlen(plan.body) + ID_BYTES, plan.body, msg_id);
}

static size_t size_nats(const char *data, size_t size) {
    const char *end = memmem(data, size, "\r\n", 2);
    if (!end) return 0;
    size_t whole = end + 2 - data;
    if (!strncmp(data, "MSG ", 4)) {
        while (end[-1] != ' ') end--;
        whole += atoi(end) + 2;
    }
    return whole <= size ? whole : 0;
}

static void answer_nats(struct connection *c, const char *data, size_t size) {
    unsigned slot, count;
    if (!strncmp(data, "PING", 4)) send_text(c, "PONG\r\n");
    if (!strncmp(data, "-ERR", 4)) fail("the server refuses: %.*s", (int)size, data);
    if (sscanf(data, "MSG answers.%*8x.%*4x.%2x%8x", &slot, &count) != 2) return;
    if (slot >= (unsigned)c->window) fail("unexpected answer: %.*s", (int)size, data);
    struct slot *s = &c->slots[slot];
    bool right = count == s->count && s->unanswered && memmem(data, size, "\"seq\":", 6);
    if (!right) report_wrong(data, size);
    if (count == s->count && s->unanswered) advance(c, s, right, true);
    else wrong++; /* answered before */
}

/* AMQP 0.9.1. A method is its class and its number in the class. */

enum {
    START = 10 << 16 | 10, START_OK = 10 << 16 | 11, TUNE = 10 << 16 | 30, TUNE_OK = 10 << 16 | 31,
    OPEN = 10 << 16 | 40, OPEN_OK = 10 << 16 | 41, CHANNEL_OPEN = 20 << 16 | 10,
    CHANNEL_OPEN_OK = 20 << 16 | 11, QUEUE_DECLARE = 50 << 16 | 10, DECLARE_OK = 50 << 16 | 11,
    BASIC_PUBLISH = 60 << 16 | 40, BASIC_ACK = 60 << 16 | 80, BASIC_NACK = 60 << 16 | 120,
    CONFIRM_SELECT = 85 << 16 | 10, SELECT_OK = 85 << 16 | 11,
};
enum { METHOD = 1, HEADER = 2, BODY = 3, FRAME_END = 0xce };
enum { FRAME_HEAD = 7 };      /* bytes of a frame before its content */
enum { DURABLE = 2, DELIVERY_MODE = 0x1000, PERSISTENT = 2 };

static uint64_t get_number(const unsigned char *at, int bytes) {
    uint64_t number = 0;
    while (bytes--) number = number << 8 | *at++;
    return number;
}

static unsigned char *put_short_string(unsigned char *at, const char *text) {
    *at++ = strlen(text);
    return (unsigned char *)mempcpy(at, text, strlen(text));
}

/* Send a frame whose content begins at `frame + FRAME_HEAD`. */
static void send_frame(struct connection *c, int type, int channel, unsigned char *frame,
                       unsigned char *end) {
    put_number(put_number(put_number(frame, type, 1), channel, 2), end - frame - FRAME_HEAD, 4);
    *end++ = FRAME_END;
    send_all(c, frame, end - frame);
}

static size_t size_amqp(const char *data, size_t size) {
    if (size < FRAME_HEAD) return 0;
    size_t whole = FRAME_HEAD + get_number((const unsigned char *)data + 3, 4) + 1;
    return whole <= size ? whole : 0;
}

/* Read the next frame, which must be this method; its arguments are in the buffer until the next
 * read. */
static const unsigned char *await_method(struct connection *c, uint32_t method) {
    const unsigned char *frame = (unsigned char *)c->buffer + FRAME_HEAD;
    flush(c);
    for (c->used = 0; !size_amqp(c->buffer, c->used);)
        if (!read_some(c)) fail("connection %d: no method %08x in time", c->number, method);
    c->used = 0;
    if (get_number(frame, 4) != method)
        fail("login of connection %d: method %08lx instead of %08x", c->number,
             (unsigned long)get_number(frame, 4), method);
    return frame + 4;
}

static void login_amqp(struct connection *c) {
    unsigned char frame[512], *const content = frame + FRAME_HEAD, *at, *size;
    char response[256];
    send_all(c, "AMQP\0\0\x9\x1", 8);
    await_method(c, START);
    at = put_number(put_number(content, START_OK, 4), 0, 4); /* no properties */
    at = put_short_string(at, "PLAIN");
    int length = snprintf(response, sizeof response, "%csensor%04d%c%s", 0, c->number, 0,
                          plan.password);
    at = mempcpy(put_number(at, length, 4), response, length);
    send_frame(c, METHOD, 0, frame, put_short_string(at, "en_US"));
    const unsigned char *limits = await_method(c, TUNE); /* of channels and of a frame's size */
    at = mempcpy(put_number(content, TUNE_OK, 4), limits, 6);
    send_frame(c, METHOD, 0, frame, put_number(at, 0, 2)); /* no heartbeats */
    at = put_short_string(put_number(content, OPEN, 4), "/");
    send_frame(c, METHOD, 0, frame, put_number(at, 0, 2));
    await_method(c, OPEN_OK);
    send_frame(c, METHOD, 1, frame, put_number(put_number(content, CHANNEL_OPEN, 4), 0, 1));
    await_method(c, CHANNEL_OPEN_OK);
    if (c->number == 0) {
        at = put_number(put_number(content, QUEUE_DECLARE, 4), 0, 2);
        size = put_number(put_short_string(at, plan.to), DURABLE, 1);
        at = put_short_string(size + 4, "x-queue-type");
        *at++ = 'S';
        at = mempcpy(put_number(at, 6, 4), "quorum", 6);
        put_number(size, at - size - 4, 4);
        send_frame(c, METHOD, 1, frame, at);
        await_method(c, DECLARE_OK);
    }
    send_frame(c, METHOD, 1, frame, put_number(put_number(content, CONFIRM_SELECT, 4), 0, 1));
    await_method(c, SELECT_OK);
    c->last_tag = 0;
}

static void send_amqp(struct connection *c, struct slot *s) {
    unsigned char frame[BUFFER], *const content = frame + FRAME_HEAD, *at;
    char msg_id[32];
    size_t size = strlen(plan.body);
    s->tag = ++c->last_tag;
    at = put_short_string(put_number(put_number(content, BASIC_PUBLISH, 4), 0, 2), "");
    send_frame(c, METHOD, 1, frame, put_number(put_short_string(at, plan.to), 0, 1));
    at = put_number(put_number(content, BASIC_PUBLISH >> 16, 2), 0, 2);
    at = put_number(put_number(at, 0, 4), size + ID_BYTES, 4); /* in 8 bytes */
    send_frame(c, HEADER, 1, frame, put_number(put_number(at, DELIVERY_MODE, 2), PERSISTENT, 1));
    format_msg_id(msg_id, c, s);
    send_frame(c, BODY, 1, frame, mempcpy(mempcpy(content, plan.body, size), msg_id, ID_BYTES));
}

static void answer_amqp(struct connection *c, const char *data, size_t size) {
    const unsigned char *at = (const unsigned char *)data + FRAME_HEAD;
    if (*data != METHOD) return; /* a heartbeat */
    uint32_t method = get_number(at, 4);
    if (method != BASIC_ACK && method != BASIC_NACK)
        fail("connection %d: unexpected method %08x: %.*s", c->number, method, (int)size, data);
    uint64_t tag = get_number(at + 4, 8), answered = 0;
    bool multiple = at[12] & 1;
    if (method == BASIC_NACK) report_wrong("basic.nack", 10);
    for (struct slot *s = c->slots; s < c->slots + c->window; s++) {
        if (!s->unanswered || (multiple ? s->tag > tag : s->tag != tag)) continue;
        advance(c, s, method == BASIC_ACK, true);
        answered++;
    }
    if (!answered) { /* answered before */
        report_wrong("basic.ack", 9);
        wrong++;
    }
}

static const struct protocol {
    const char *name;
    void (*login)(struct connection *);
    void (*send)(struct connection *, struct slot *);
    size_t (*size)(const char *, size_t); /* of the answer at the start, 0 if not complete */
    void (*answer)(struct connection *, const char *, size_t);
    bool subscribes;          /* a subscriber counts the messages */
} protocols[] = {
    {"xmpp", login_xmpp, send_xmpp, size_xmpp, answer_xmpp, false},
    {"pubsub", login_xmpp, send_pubsub, size_xmpp, answer_xmpp, false},
    {"mqtt", login_mqtt, send_mqtt, size_mqtt, answer_mqtt, true},
    {"nats", login_nats, send_nats, size_nats, answer_nats, false},
    {"amqp", login_amqp, send_amqp, size_amqp, answer_amqp, false},
    {NULL},
}, *protocol = protocols;

static void send_step(struct connection *c, struct slot *s) { protocol->send(c, s); }

static void begin(struct connection *c, struct slot *s) {
    if (plan.exchanges && started == (unsigned long)plan.exchanges) return;
    started++;
    s->count++;
    s->second = false;
    s->unanswered = true;
    s->began = now();
    in_flight++;
    send_step(c, s);
}

/* The run */

static void open_socket(struct connection *c) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(plan.port)};
    struct timeval limit = {.tv_sec = LOGIN_SECONDS};
    if (inet_pton(AF_INET, plan.host, &address.sin_addr) != 1) fail("no IPv4 address: host");
    c->socket = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(c->socket, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(c->socket, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    if (connect(c->socket, (struct sockaddr *)&address, sizeof address))
        fail("connection %d: %s", c->number, strerror(errno));
    c->window = plan.window;
    c->tls = NULL;
    c->used = 0;
}

static void receive(struct connection *c) {
    do {
        if (!read_some(c)) break;
        size_t at = 0, size;
        while (at < c->used && (size = protocol->size(c->buffer + at, c->used - at))) {
            protocol->answer(c, c->buffer + at, size);
            at += size;
        }
        c->used -= at;
        memmove(c->buffer, c->buffer + at, c->used + 1);
    } while (c->socket >= 0 && c->tls && SSL_pending(c->tls));
    flush(c);
}

static void watch(int poll, struct connection *c) {
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
    flush(c);
    fcntl(c->socket, F_SETFL, O_NONBLOCK);
    epoll_ctl(poll, EPOLL_CTL_ADD, c->socket, &event);
    receive(c); /* TLS may have read more than the login needed */
}

static void handle(int poll, double seconds) {
    struct epoll_event events[EVENTS];
    struct timespec limit = {.tv_sec = seconds, .tv_nsec = (seconds - (long)seconds) * 1e9};
    int count = epoll_pwait2(poll, events, EVENTS, &limit, NULL);
    for (int i = 0; i < count; i++) receive(events[i].data.ptr);
}

/* With `rate`, begin the exchanges that are due; return the time of the next one, at most `end`. */
static double begin_due(double end) {
    for (struct connection *c = connections; c < connections + plan.connections; c++) {
        struct slot *s = c->slots;
        if (!s->unanswered && c->due <= now()) {
            begin(c, s);
            if (c->free_at > c->due) s->began = c->due;
            c->due += plan.connections / plan.rate;
            flush(c);
        }
        if (!s->unanswered && c->due < end) end = c->due;
    }
    return end;
}

/* Handle answers until a time, or until no exchange is in flight or due. */
static void handle_until(int poll, double end) {
    bool paced = plan.rate && active;
    for (double next = end; (in_flight || paced) && now() < end; next = end) {
        if (paced) next = begin_due(end);
        double left = next - now();
        handle(poll, left > 0 ? left : 0);
    }
}

/* The subscriber: a session of the first account. */

static bool connect_subscriber(enum session session) {
    open_socket(&subscriber);
    return connect_mqtt(&subscriber, "subscriber", 0, session);
}

static void subscribe(void) {
    unsigned char packet[CONTENT], *at = put_number(packet + 5, 1, 2);
    char filter[256];
    snprintf(filter, sizeof filter, "+/%s", plan.topic);
    if (has_properties()) *at++ = 0;
    at = put_string(at, filter);
    *at++ = plan.qos;
    send_packet(&subscriber, SUBSCRIBE, packet, at);
    await_packet(&subscriber, SUBACK, packet);
    if (packet[has_properties() ? 3 : 2] >= REFUSED) fail("the subscription is refused");
}

/* Make a new session before the measurement, if there is to be one. */
static void prepare_subscriber(int poll) {
    if (!*plan.subscriber) return;
    connect_subscriber(TRANSIENT); /* ends the session of an earlier run */
    close_connection(&subscriber);
    connect_subscriber(NEW);
    subscribe();
    flush(&subscriber);
    if (!strcmp(plan.subscriber, "live")) watch(poll, &subscriber);
    else close_connection(&subscriber);
}

/* Return whether the subscriber got the last message of a connection. */
static bool has_last(const struct connection *c) {
    for (const struct slot *s = c->slots; s < c->slots + c->window; s++)
        if (s->count && s->last_received == s->count) return true;
    return false;
}

/* Receive messages until all have come, or none for a while; return how many are missing that were
 * acknowledged. */
static unsigned long count_missing(int poll) {
    unsigned long missing = 0, used = plan.connections; /* that have sent something */
    if (!*plan.subscriber) {
        connect_subscriber(TRANSIENT);
        subscribe();
    } else if (strcmp(plan.subscriber, "live") && !connect_subscriber(RESUMED)) {
        return finished; /* the server has lost the session */
    }
    if (strcmp(plan.subscriber, "live")) watch(poll, &subscriber);
    if (started < used) used = started;
    unsigned long expected = *plan.subscriber ? finished : used;
    last_received = now();
    /* After a restart, messages may come that were not acknowledged. */
    for (double left; received < expected || plan.restart; handle(poll, left))
        if ((left = last_received + plan.silence - now()) <= 0) break;
    close_connection(&subscriber);
    for (struct connection *c = connections; c < connections + used; c++) {
        if (!*plan.subscriber) missing += !has_last(c);
        for (struct slot *s = c->slots; *plan.subscriber && s < c->slots + c->window; s++) {
            uint32_t found = s->received - (s->unanswered && s->last_received == s->count);
            if (found < s->acknowledged) missing += s->acknowledged - found;
        }
    }
    return missing;
}

/* Go on until the server is killed; from then on, connect to the one that has started again. */
static void await_restart(int poll) {
    ends_soon = true;
    handle_until(poll, now() + DRAIN_SECONDS);
    if (in_flight) fail("the server was not killed in time");
    for (struct connection *c = connections; c < connections + plan.connections; c++)
        if (c->socket >= 0) close_connection(c);
    if (scanf("%d", &plan.port) != 1) fail("no port in standard input");
    ends_soon = false;
}

static int compare(const void *a, const void *b) {
    float x = ((const struct latency *)a)->seconds, y = ((const struct latency *)b)->seconds;
    return (x > y) - (x < y);
}

static double quantile(double share) {
    return latency_count ? latencies[(size_t)(share * (latency_count - 1))].seconds : 0.0;
}

/* Print the latencies of each connection, by its local port. */
static void print_list(void) {
    for (struct connection *c = connections; c < connections + plan.connections; c++) {
        struct sockaddr_in local = {0};
        const char *separator = "";
        getsockname(c->socket, (struct sockaddr *)&local, &(socklen_t){sizeof local});
        printf("%s\"%d\": [", c == connections ? "" : ", ", ntohs(local.sin_port));
        for (size_t i = 0; i < latency_count; i++) {
            if (latencies[i].connection != c->number) continue;
            printf("%s%.6f", separator, latencies[i].seconds);
            separator = ", ";
        }
        printf("]");
    }
}

static void measure(int poll) {
    for (struct connection *c = connections; c < connections + plan.connections; c++) {
        c->due = now() + c->number / plan.rate; /* used with a rate */
        for (int slot = 0; !plan.rate && slot < c->window; slot++) begin(c, &c->slots[slot]);
        flush(c);
    }
    handle_until(poll, now() + plan.warm_up);
    latency_count = 0;
    unsigned long before = finished, answered = finished + wrong;
    double began = now(), own = processor_time();
    puts("measuring");
    do handle_until(poll, now() + plan.seconds);
    while (finished + wrong == answered && in_flight);
    puts("measured");
    double seconds = now() - began;
    own = processor_time() - own;
    unsigned long done = finished - before;
    qsort(latencies, latency_count, sizeof *latencies, compare);
    double median = quantile(0.5), slow = quantile(0.99);
    if (plan.restart) await_restart(poll);
    active = false;
    handle_until(poll, now() + DRAIN_SECONDS);
    if (in_flight) fail("%lu exchanges were not answered", in_flight);
    unsigned long missing = protocol->subscribes ? count_missing(poll) : 0;
    printf("{\"exchanges\": %lu, \"seconds\": %.6f, \"errors\": %lu, \"load\": %.6f,"
           " \"median\": %.6f, \"slow\": %.6f, \"sent\": %lu, \"missing\": %lu,"
           " \"repeated\": %lu, \"by_port\": {",
           done, seconds, wrong, own, median, slow, finished, missing, repeated);
    if (plan.list) print_list();
    puts("}}");
}

static void read_option(char *argument) {
    char *value = strchr(argument, '=');
    if (!value) fail("no NAME=VALUE: %s", argument);
    *value++ = 0;
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        const struct option *option = &options[i];
        if (strcmp(option->name, argument)) continue;
        if (option->text) *option->text = value;
        else if (option->integer) *option->integer = atoi(value);
        else *option->real = atof(value);
        return;
    }
    fail("unknown option: %s", argument);
}

int main(int count, char **arguments) {
    for (int i = 1; i < count; i++) read_option(arguments[i]);
    if (!plan.protocol || !plan.host || !plan.password || !plan.body)
        fail("protocol, host, password and body are required");
    if (strlen(plan.body) > BUFFER / 2) fail("the body is too long");
    if (plan.qos == 0 && !strcmp(plan.subscriber, "away"))
        fail("no message of QoS 0 is kept for a subscriber that is away");
    if (plan.restart && strcmp(plan.subscriber, "away"))
        fail("only a subscriber that is away gets the messages of a restarted server");
    if (plan.rate && plan.window > 1) fail("a rate is for one exchange of each connection");
    if (plan.connections < 1 || plan.window < 1 || plan.window > MAX_WINDOW)
        fail("at least one connection, and a window of 1 to %d", MAX_WINDOW);
    while (protocol->name && strcmp(protocol->name, plan.protocol)) protocol++;
    if (!protocol->name) fail("unknown protocol: %s", plan.protocol);
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    signal(SIGPIPE, SIG_IGN);
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (getrandom(&run, sizeof run, 0) != sizeof run) fail("no random number");
    tls_context = SSL_CTX_new(TLS_client_method());
    connections = calloc(plan.connections, sizeof *connections);
    if (!connections || !tls_context) fail("out of memory");
    int poll = epoll_create1(0);
    if (protocol->subscribes) prepare_subscriber(poll);
    for (int i = 0; i < plan.connections; i++) {
        connections[i].number = i;
        open_socket(&connections[i]);
        protocol->login(&connections[i]);
        watch(poll, &connections[i]);
    }
    if (plan.hold) {
        puts("connected");
        getchar();
    }
    measure(poll);
    return 0;
}
