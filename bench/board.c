// The board of a cluster in PostgreSQL: how many looks of nodes a database carries. A look is what
// a node does each second: it puts its note, reads all notes and the states of all shards.
//
//     test/support/with_postgres.py build/bench/board [NODES [SHARDS [THREADS [SECONDS]]]]
//
// There are as many notes as nodes; THREADS of them look as fast as they can, with a connection
// each. Prints looks a second, the time of each part, and for each look the CPU time of the node,
// of the server with its sessions, and the bytes of notes that were read.
#include "bench/measure.h"

#include "base/errors.h"
#include "log/board.h"
#include "log/replicated.h"

#include <dirent.h>
#include <pthread.h>
#include <string.h>

enum { THREADS_MOST = 64 };
enum part { PUT, NOTES, LOOK, PARTS };

struct run {
    struct store_url store;
    uint32_t nodes, shards;
    double until_ns;
};

struct looker {
    pthread_t thread;
    const struct run *run;
    struct board *board;
    uint32_t number;
    uint64_t looks, bytes;
    double ns[PARTS];
};

static void try(int err, const char *what) {
    if (err)
        must(-1, what, error_text());
}

static int note_count(void *arg, const struct board_note *n) {
    *(uint64_t *)arg += strlen(n->key) + strlen(n->value);
    return 0;
}

static void note_put(struct board *b, uint32_t node) {
    char key[32];
    snprintf(key, sizeof key, "node/%05u", (unsigned)node);
    try(board_put(b, key, "192.168.100.100:7411 192.168.100.100:7412 ready"), "put");
}

static double part_end(struct looker *l, enum part part, double began_ns) {
    double now_ns = clock_ns(CLOCK_MONOTONIC);
    l->ns[part] += now_ns - began_ns;
    return now_ns;
}

static void *looks_run(void *arg) {
    struct looker *l = arg;
    const struct run *r = l->run;
    struct board *b = l->board;
    struct stream_state *states = calloc(r->shards, sizeof *states);
    for (double at_ns = clock_ns(CLOCK_MONOTONIC); at_ns < r->until_ns; l->looks++) {
        note_put(b, l->number);
        at_ns = part_end(l, PUT, at_ns);
        try(board_notes(b, note_count, &l->bytes), "notes");
        at_ns = part_end(l, NOTES, at_ns);
        try(board_look(b, r->shards, states), "look");
        at_ns = part_end(l, LOOK, at_ns);
    }
    free(states);
    return NULL;
}

static void notes_fill(const struct run *r) {
    struct board *b = NULL;
    enum store_made made;
    try(stream_store_make(&r->store, r->shards, &made), "make");
    try(board_open(&r->store, &b), "open");
    for (uint32_t i = 0; i < r->nodes; i++)
        note_put(b, i);
    board_close(b);
}

// ---- CPU time of the server -------------------------------------------------------------------

// Of a process, if it is the server or a session of it.
static double process_cpu_ns(const char *pid, long server) {
    char path[300];
    long parent = 0;
    unsigned long user = 0, kernel = 0, waited_user = 0, waited_kernel = 0;
    snprintf(path, sizeof path, "/proc/%s/stat", pid);
    FILE *f = fopen(path, "r");
    if (!f)
        return 0; // it has ended
    int read = fscanf(f, "%*d (%*[^)]) %*c %ld %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu %lu %lu",
                      &parent, &user, &kernel, &waited_user, &waited_kernel);
    fclose(f);
    if (read != 5)
        return 0;
    if (strtol(pid, NULL, 10) == server)
        user += waited_user + waited_kernel;
    else if (parent != server)
        return 0;
    return (double)(user + kernel) * 1e9 / (double)sysconf(_SC_CLK_TCK);
}

static double server_cpu_ns(void) {
    const char *server = getenv("MILLRACE_POSTGRES_PID");
    DIR *all = opendir("/proc");
    double sum = 0;
    for (const struct dirent *d = all ? readdir(all) : NULL; d && server; d = readdir(all))
        if (d->d_name[0] >= '1' && d->d_name[0] <= '9')
            sum += process_cpu_ns(d->d_name, strtol(server, NULL, 10));
    if (all)
        closedir(all);
    return sum;
}

// ---- The run ----------------------------------------------------------------------------------

static struct looker lookers[THREADS_MOST];

static void lookers_open(const struct run *r, uint32_t threads) {
    for (uint32_t i = 0; i < threads; i++) {
        struct stream_state first;
        lookers[i].run = r;
        lookers[i].number = i;
        try(board_open(&r->store, &lookers[i].board), "open");
        try(board_look(lookers[i].board, 1, &first), "look"); // connects
    }
}

static struct looker lookers_run(uint32_t threads) {
    struct looker sum = { 0 };
    for (uint32_t i = 0; i < threads; i++)
        must(-pthread_create(&lookers[i].thread, NULL, looks_run, &lookers[i]), "thread", "");
    for (uint32_t i = 0; i < threads; i++) {
        must(-pthread_join(lookers[i].thread, NULL), "thread", "");
        sum.looks += lookers[i].looks;
        sum.bytes += lookers[i].bytes;
        for (int part = 0; part < PARTS; part++)
            sum.ns[part] += lookers[i].ns[part];
    }
    return sum;
}

int main(int argc, char **argv) {
    char url[256];
    const char *folder = getenv("MILLRACE_POSTGRES");
    struct run r = { .nodes = (uint32_t)argument(argc, argv, 1, 1000),
                     .shards = (uint32_t)argument(argc, argv, 2, 1000) };
    uint32_t threads = (uint32_t)argument(argc, argv, 3, 4);
    if (!folder || !threads || threads > THREADS_MOST)
        must(-1, "board", "run it with with_postgres.py, and 1 to 64 threads");
    snprintf(url, sizeof url, "host=%s user=postgres dbname=postgres", folder);
    r.store = (struct store_url){ STORE_IN_POSTGRES, url, "bench" };
    notes_fill(&r);
    lookers_open(&r, threads);
    double server_ns = server_cpu_ns();
    struct lap lap = lap_begin();
    r.until_ns = clock_ns(CLOCK_MONOTONIC) + (double)argument(argc, argv, 4, 10) * 1e9;
    struct looker sum = lookers_run(threads);
    lap = lap_end(lap);
    server_ns = server_cpu_ns() - server_ns;
    double looks = (double)sum.looks;
    printf("looks_a_second %.0f\n", looks / lap.wall_ns * 1e9);
    printf("put_ms %.2f\nnotes_ms %.2f\nlook_ms %.2f\n", sum.ns[PUT] / looks / 1e6,
           sum.ns[NOTES] / looks / 1e6, sum.ns[LOOK] / looks / 1e6);
    printf("node_cpu_ms %.2f\nserver_cpu_ms %.2f\nnotes_kilobytes %.1f\n", lap.cpu_ns / looks / 1e6,
           server_ns / looks / 1e6, (double)sum.bytes / looks / 1e3);
    for (uint32_t i = 0; i < threads; i++)
        board_close(lookers[i].board);
    return 0;
}
