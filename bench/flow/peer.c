/* The limit: the plain program in C (bench/flow/plain.py), at least once, with a window of acks.
 *
 * peer PORT STREAM CONSUMER COUNT SUBJECT filter|average
 *
 * It reads a stream through a pull consumer that exists, and prints the seconds that it took.  It
 * finds the values of the bench's own events only; it is no reader of JSON. */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { PULL = 50000, WINDOW = 8000, CHUNK = 1 << 17, KEYS = 64, BUFFER = 1 << 22 };

static char in[BUFFER], out[CHUNK + 4096];
static size_t in_size, out_size;
static long open_acks;
static int from, to;
static struct { char key[16]; double sum; long count; } sums[KEYS];
static int keys;

static void fail(const char *what) { perror(what); exit(1); }

static int dial(int port) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port)};
    int one = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (connect(fd, (struct sockaddr *)&at, sizeof at)) fail("connect");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

static void put(int fd, const char *data, size_t size) {
    while (size) {
        ssize_t done = write(fd, data, size);
        if (done <= 0) fail("write");
        data += done, size -= done;
    }
}

/* Receive acks until at most `most` are missing. */
static void acks(long most) {
    static char got[1 << 16];
    while (open_acks > most) {
        ssize_t size = read(to, got, sizeof got);
        if (size <= 0) fail("acks");
        for (ssize_t at = 0; at < size; at++) open_acks -= got[at] == '}';
    }
}

static void flush_out(void) {
    put(to, out, out_size);
    out_size = 0;
    acks(WINDOW);
}

static void emit(const char *subject, const char *data, int size) {
    out_size += sprintf(out + out_size, "PUB %s _INBOX.c.a %d\r\n%.*s\r\n", subject, size, size, data);
    open_acks++;
    if (out_size >= CHUNK) flush_out();
}

static const char *value(const char *event, const char *name) {
    const char *found = strstr(event, name);
    return found ? found + strlen(name) : "0";
}

static void emit_means(const char *subject) {
    char data[128];
    for (int at = 0; at < keys; at++)
        emit(subject, data, sprintf(data, "{\"k\":\"%.15s\",\"mean\":%.17g}", sums[at].key,
                                    sums[at].sum / sums[at].count));
    keys = 0;
}

static void work(const char *subject, int is_filter, long second, const char *event) {
    static long now;
    char key[16] = "", data[256];
    double v = atof(value(event, "\"v\": "));
    sscanf(value(event, "\"k\": \""), "%15[^\"]", key);
    if (is_filter) {
        long n = atol(value(event, "\"n\": "));
        if (v >= 0)
            emit(subject, data, sprintf(data, "{\"n\":%ld,\"w\":%.17g,\"k\":\"%s\"}", n, v * 2, key));
        return;
    }
    if (second != now) emit_means(subject), now = second;
    int at = 0;
    while (at < keys && strcmp(sums[at].key, key)) at++;
    if (at == KEYS) exit(2);
    if (at == keys) strcpy(sums[keys].key, key), sums[keys].sum = 0, sums[keys++].count = 0;
    sums[at].sum += v, sums[at].count++;
}

int main(int given, char **args) {
    if (given != 7) return 2;
    const char *hello = "CONNECT {\"verbose\":false,\"headers\":true}\r\nSUB _INBOX.c.* 1\r\n";
    const char *inbox[] = {"SUB _INBOX.m 1\r\n"};
    long count = atol(args[4]), got = 0, asked = 0;
    struct timespec start, end;
    char line[512];
    from = dial(atoi(args[1])), to = dial(atoi(args[1]));
    /* The first line of the server. */
    if (read(from, in, BUFFER) <= 0 || read(to, in, BUFFER) <= 0) fail("info");
    put(to, hello, strlen(hello));
    put(from, "CONNECT {\"verbose\":false,\"headers\":true}\r\n", 42);
    put(from, inbox[0], strlen(inbox[0]));
    clock_gettime(CLOCK_MONOTONIC, &start);
    while (got < count) {
        while (asked < count && asked - got <= PULL) {
            char query[96];
            int size = sprintf(query, "{\"batch\":%d,\"expires\":600000000000}", PULL);
            put(from, line, sprintf(line, "PUB $JS.API.CONSUMER.MSG.NEXT.%s.%s _INBOX.m %d\r\n%s\r\n",
                                    args[2], args[3], size, query));
            asked += PULL;
        }
        ssize_t size = read(from, in + in_size, BUFFER - 1 - in_size);
        if (size <= 0) fail("read");
        in_size += size;
        in[in_size] = 0;
        char *at = in, *break_;
        while ((break_ = memchr(at, '\n', in + in_size - at))) {
            if (!strncmp(at, "PING", 4)) {
                put(from, "PONG\r\n", 6);
                at = break_ + 1;
                continue;
            }
            break_[-1] = 0;
            long bytes = atol(strrchr(at, ' ') + 1);
            if (break_ + 1 + bytes + 2 > in + in_size) {
                break_[-1] = '\r';
                break;
            }
            if (!strncmp(at, "MSG", 3)) {
                /* MSG subject sid $JS.ACK.stream.consumer.delivered.sequence.number.time.pending size */
                const char *word = strstr(at, "$JS.ACK.");
                for (int dots = 0; word && dots < 7; word++) dots += *word == '.';
                long second = word ? strtol(word, 0, 10) / 1000000000 : 0;
                char *event = break_ + 1;
                event[bytes] = 0;
                work(args[5], args[6][0] == 'f', second, event);
                got++;
            }
            at = break_ + 1 + bytes + 2;
        }
        in_size -= at - in;
        memmove(in, at, in_size);
    }
    flush_out();
    acks(0);
    clock_gettime(CLOCK_MONOTONIC, &end);
    printf("%.6f\n", end.tv_sec - start.tv_sec + (end.tv_nsec - start.tv_nsec) / 1e9);
    return 0;
}
