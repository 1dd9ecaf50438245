/* Pass bytes on between the connections of a port and a server on this machine, and do nothing else:
 * what any further process between peers and a server costs them.
 *
 * Usage: pass_bytes PORT. Output: the line `ready bytes=127.0.0.1:OWN_PORT`. Ends at SIGTERM. The
 * messages must be small: one write takes what one read has got.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MAX_FILES = 8192, READ_BYTES = 65536, EVENTS = 64, BACKLOG = 1024 };

static int other_end[MAX_FILES]; /* of each socket: the one to which its bytes go */
static int poll_file;
static struct sockaddr_in server = {.sin_family = AF_INET};

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static void end(int signal) {
    (void)signal;
    _exit(0);
}

static void watch(int file) {
    struct epoll_event event = {.events = EPOLLIN, .data.fd = file};
    if (epoll_ctl(poll_file, EPOLL_CTL_ADD, file, &event)) fail("epoll_ctl");
}

static void accept_from(int listener) {
    int peer = accept(listener, NULL, NULL), connection = socket(AF_INET, SOCK_STREAM, 0);
    if (peer < 0 || connection < 0 || connection >= MAX_FILES || peer >= MAX_FILES) fail("accept");
    if (connect(connection, (struct sockaddr *)&server, sizeof server)) fail("connect");
    setsockopt(peer, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    other_end[peer] = connection;
    other_end[connection] = peer;
    watch(peer);
    watch(connection);
}

static void pass(int from) {
    static char data[READ_BYTES];
    int to = other_end[from];
    if (to < 0) return; /* closed while its event was waiting */
    ssize_t count = read(from, data, sizeof data);
    if (count > 0 && write(to, data, count) == count) return;
    other_end[from] = other_end[to] = -1;
    close(from);
    close(to);
}

int main(int count, char **arguments) {
    signal(SIGPIPE, SIG_IGN);
    signal(SIGTERM, end);
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof own;
    if (count != 2) return 2;
    server.sin_addr = own.sin_addr;
    server.sin_port = htons(atoi(arguments[1]));
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    poll_file = epoll_create1(0);
    if (bind(listener, (struct sockaddr *)&own, size) || listen(listener, BACKLOG)) fail("bind");
    getsockname(listener, (struct sockaddr *)&own, &size);
    watch(listener);
    printf("ready bytes=127.0.0.1:%d\n", ntohs(own.sin_port));
    fflush(stdout);
    for (;;) {
        struct epoll_event events[EVENTS];
        int ready = epoll_wait(poll_file, events, EVENTS, -1);
        for (int i = 0; i < ready; i++) {
            if (events[i].data.fd == listener) accept_from(listener);
            else pass(events[i].data.fd);
        }
    }
}
