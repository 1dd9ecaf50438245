/* Load generator: many connections in one thread, each with exchanges in flight, over epoll.
 *
 * Usage: peers_load NAME=VALUE..., with the names in `options` below. Protocols:
 *   xmpp     the gateway: `assured`, `received`, `deliver`, empty result (PROTOCOL: urn:xmpp:qos)
 *   pubsub   an XMPP server: publish an item to a node, result
 *   mqtt     MQTT 3.1.1 with QoS 2: PUBLISH, PUBREC, PUBREL, PUBCOMP
 * Each connection logs in to an account of its own, sensor0000 and so on, all with one password:
 * SASL PLAIN where the server offers it, else SCRAM-SHA-256. With tls=1 it uses STARTTLS and does
 * not verify the certificate. Every answer must be the expected one.
 *
 * Output: the line `measuring` after the warm-up, `measured` after the measurement, and after the
 * exchanges in flight are finished a JSON object: exchanges and seconds of the measurement, wrong
 * answers, processor seconds of this process, and latency quantiles in seconds.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
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
    SHA256_BYTES = 32,
};

static struct {
    const char *protocol, *host, *domain, *to, *password, *body, *first;
    int port, connections, window, exchanges, tls;
    double warm_up, seconds;
} plan = {.window = 1};

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
    {"to", .text = &plan.to},                   /* XMPP address of requests */
    {"body", .text = &plan.body},               /* payload: of the message, the item, PUBLISH */
    {"first", .text = &plan.first},             /* stanza that the first connection sends before */
};

struct slot {                 /* an exchange in flight */
    uint32_t count;           /* number of the message in this slot */
    bool second;              /* the first answer has arrived */
    double began;
};

struct connection {
    int socket, number;
    SSL *tls;
    size_t used;              /* bytes of a partial answer in `buffer` */
    char buffer[BUFFER];
    struct slot slots[MAX_WINDOW];
};

static struct connection *connections;
static SSL_CTX *tls_context;
static uint32_t run;          /* random number that makes message ids unique */
static bool active = true;    /* a finished exchange is followed by a new one */
static unsigned long started, finished, wrong, in_flight;
static float *latencies;      /* of all finished exchanges since the warm-up */
static size_t latency_count, latency_room;

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

static void put_latency(double seconds) {
    if (latency_count == latency_room) {
        latency_room = latency_room ? 2 * latency_room : 1 << 16;
        latencies = realloc(latencies, latency_room * sizeof *latencies);
        if (!latencies) fail("out of memory");
    }
    latencies[latency_count++] = seconds;
}

/* Bytes in and out */

static void send_all(struct connection *c, const void *data, size_t size) {
    long sent = c->tls ? SSL_write(c->tls, data, size) : send(c->socket, data, size, MSG_NOSIGNAL);
    if (sent != (long)size) fail("connection %d took %ld of %zu bytes", c->number, sent, size);
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
    if (size <= 0) fail("the server closed connection %d: %.500s", c->number, c->buffer);
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

static char *start_tls(struct connection *c) {
    send_text(c, "<starttls xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>");
    read_answer(c, "<proceed", NULL);
    c->tls = SSL_new(tls_context);
    SSL_set_fd(c->tls, c->socket);
    SSL_set_tlsext_host_name(c->tls, plan.domain);
    if (SSL_connect(c->tls) != 1)
        fail("TLS of connection %d: %s", c->number, ERR_error_string(ERR_get_error(), NULL));
    return open_stream(c);
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
    if (plan.tls) features = start_tls(c);
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
    if (right) {
        finished++;
        put_latency(now() - s->began);
    } else {
        wrong++;
    }
    if (active) begin(c, s);
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

/* MQTT 3.1.1. The packet identifier is the slot's number, from one. */

enum { CONNECT = 0x10, CONNACK = 0x20, PUBREC = 0x50, PUBREL = 0x62, PUBCOMP = 0x70 };
enum { PUBLISH_RETAINED = 0x35 }; /* a server saves no message that nobody is to get */
enum { ACK_BYTES = 4 };

static unsigned char *put_string(unsigned char *at, const char *text) {
    size_t size = strlen(text);
    *at++ = size >> 8;
    *at++ = size & 0xff;
    return (unsigned char *)memcpy(at, text, size) + size;
}

/* Send a packet whose content begins at `packet + 5`: the room for its fixed header. */
static void send_packet(struct connection *c, int type, unsigned char *packet, unsigned char *end) {
    size_t size = end - packet - 5, digits = size < 128 ? 1 : size < 16384 ? 2 : 3;
    unsigned char *start = packet + 4 - digits, *at = start;
    *at++ = type;
    for (size_t left = size; digits--; left >>= 7) *at++ = (left & 0x7f) | (digits ? 0x80 : 0);
    send_all(c, start, end - start);
}

/* A session that outlasts the connection, because QoS 2 is exactly once with such sessions only. */
static void login_mqtt(struct connection *c) {
    unsigned char packet[256], *at = packet + 5;
    char name[16];
    snprintf(name, sizeof name, "sensor%04d", c->number);
    at = put_string(at, "MQTT");
    *at++ = 4;                  /* version 3.1.1 */
    *at++ = 0x80 | 0x40;        /* with a name and password */
    *at++ = 0, *at++ = 0;       /* no keep-alive */
    at = put_string(put_string(put_string(at, name), name), plan.password);
    send_packet(c, CONNECT, packet, at);
    for (c->used = 0; c->used < ACK_BYTES;)
        if (!read_some(c)) fail("connection %d: no CONNACK in time", c->number);
    if (c->buffer[0] != CONNACK || c->buffer[3])
        fail("connection %d is refused with code %d", c->number, c->buffer[3]);
    c->used = 0;
}

static void send_mqtt(struct connection *c, struct slot *s) {
    unsigned char packet[BUFFER], *at = packet + 5;
    char topic[32];
    int identifier = s - c->slots + 1;
    if (!s->second) {
        snprintf(topic, sizeof topic, "sensors/sensor%04d", c->number);
        at = put_string(at, topic);
    }
    *at++ = 0, *at++ = identifier;
    if (!s->second) at = (unsigned char *)mempcpy(at, plan.body, strlen(plan.body));
    send_packet(c, s->second ? PUBREL : PUBLISH_RETAINED, packet, at);
}

static size_t size_mqtt(const char *data, size_t size) {
    (void)data; /* all expected packets have the same size */
    return size < ACK_BYTES ? 0 : ACK_BYTES;
}

static void answer_mqtt(struct connection *c, const char *data, size_t size) {
    int slot = data[3] - 1;
    if (data[1] != 2 || data[2] || slot < 0 || slot >= plan.window)
        fail("unexpected packet of type %02x", (unsigned char)data[0]);
    struct slot *s = &c->slots[slot];
    bool right = data[0] == (s->second ? PUBCOMP : PUBREC);
    if (!right) report_wrong("a packet", size);
    advance(c, s, right, s->second);
}

static const struct protocol {
    const char *name;
    void (*login)(struct connection *);
    void (*send)(struct connection *, struct slot *);
    size_t (*size)(const char *, size_t); /* of the answer at the start, 0 if not complete */
    void (*answer)(struct connection *, const char *, size_t);
} protocols[] = {
    {"xmpp", login_xmpp, send_xmpp, size_xmpp, answer_xmpp},
    {"pubsub", login_xmpp, send_pubsub, size_xmpp, answer_xmpp},
    {"mqtt", login_mqtt, send_mqtt, size_mqtt, answer_mqtt},
    {NULL},
}, *protocol = protocols;

static void send_step(struct connection *c, struct slot *s) { protocol->send(c, s); }

static void begin(struct connection *c, struct slot *s) {
    if (plan.exchanges && started == (unsigned long)plan.exchanges) return;
    started++;
    s->count++;
    s->second = false;
    s->began = now();
    in_flight++;
    send_step(c, s);
}

/* The run */

static void open_connection(struct connection *c) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(plan.port)};
    struct timeval limit = {.tv_sec = LOGIN_SECONDS};
    if (inet_pton(AF_INET, plan.host, &address.sin_addr) != 1) fail("no IPv4 address: host");
    c->socket = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(c->socket, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(c->socket, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    if (connect(c->socket, (struct sockaddr *)&address, sizeof address))
        fail("connection %d: %s", c->number, strerror(errno));
    protocol->login(c);
    fcntl(c->socket, F_SETFL, O_NONBLOCK);
}

static void receive(struct connection *c) {
    do {
        if (!read_some(c)) return;
        size_t at = 0, size;
        while (at < c->used && (size = protocol->size(c->buffer + at, c->used - at))) {
            protocol->answer(c, c->buffer + at, size);
            at += size;
        }
        c->used -= at;
        memmove(c->buffer, c->buffer + at, c->used + 1);
    } while (c->tls && SSL_pending(c->tls));
}

/* Handle answers until a time, or until no exchange is in flight. */
static void handle_until(int poll, double end) {
    struct epoll_event events[EVENTS];
    for (double left; in_flight && (left = end - now()) > 0;) {
        int count = epoll_wait(poll, events, EVENTS, left * 1000 + 1);
        for (int i = 0; i < count; i++) receive(events[i].data.ptr);
    }
}

static int compare(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static double quantile(double share) {
    return latency_count ? latencies[(size_t)(share * (latency_count - 1))] : 0.0;
}

static void measure(int poll) {
    for (int i = 0; i < plan.connections; i++)
        for (int slot = 0; slot < plan.window; slot++)
            begin(&connections[i], &connections[i].slots[slot]);
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
    active = false;
    handle_until(poll, now() + DRAIN_SECONDS);
    if (in_flight) fail("%lu exchanges were not answered", in_flight);
    printf("{\"exchanges\": %lu, \"seconds\": %.6f, \"errors\": %lu, \"load\": %.6f,"
           " \"median\": %.6f, \"slow\": %.6f}\n",
           done, seconds, wrong, own, median, slow);
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
    if (plan.connections < 1 || plan.window < 1 || plan.window > MAX_WINDOW)
        fail("at least one connection, and a window of 1 to %d", MAX_WINDOW);
    while (protocol->name && strcmp(protocol->name, plan.protocol)) protocol++;
    if (!protocol->name) fail("unknown protocol: %s", plan.protocol);
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (getrandom(&run, sizeof run, 0) != sizeof run) fail("no random number");
    tls_context = SSL_CTX_new(TLS_client_method());
    connections = calloc(plan.connections, sizeof *connections);
    if (!connections || !tls_context) fail("out of memory");
    int poll = epoll_create1(0);
    for (int i = 0; i < plan.connections; i++) {
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = &connections[i]};
        connections[i].number = i;
        open_connection(&connections[i]);
        epoll_ctl(poll, EPOLL_CTL_ADD, connections[i].socket, &event);
    }
    measure(poll);
    return 0;
}
