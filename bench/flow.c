// Words of a text, counted by a flow: lines, split, count, and a sink that adds up. The text has
// 20,000 different words, as frequent as in a language.
//
//     flow [URL [WORDS [REPEATS [SYNC]]]]     mem:, or file:DIR for a store in DIR that is new each
//     time
#include "bench/measure.h"
#include "bench/words.h"
#include "millrace_flow.h"

#include <ftw.h>
#include <stdatomic.h>
#include <string.h>

static void try(int err, const char *what) {
    if (err < 0)
        must(err, what, mr_error());
}

// ---- The flow ---------------------------------------------------------------------------------

static int split(mr_pair line, mr_flow_out *out, void *arg) {
    const char *at = line.value.data, *end = at + line.value.size;
    int err = 0;
    (void)arg;
    while (at < end && err >= 0) {
        const char *word = at;
        while (at < end && *at != ' ')
            at++;
        if (at > word)
            err = mr_flow_emit(out, (mr_bytes){ word, (size_t)(at - word) }, mr_str("1"));
        at++;
    }
    return err;
}

static int add_up(mr_pair count, uint64_t number, void *arg) {
    char text[32];
    (void)number;
    snprintf(text, sizeof text, "%.*s", (int)count.value.size, (const char *)count.value.data);
    atomic_fetch_add((_Atomic uint64_t *)arg, strtoull(text, NULL, 10));
    return 0;
}

static void count_words(mr *m, const char *path, uint64_t words) {
    _Atomic uint64_t sum = 0;
    mr_flow *f;
    try(mr_flow_open(m, "words", NULL, &f), "open");
    try(mr_flow_lines(f, "text", path, NULL), "lines");
    try(mr_flow_flat_map(f, "split", "text", split, NULL, NULL), "split");
    try(mr_flow_aggregate(f, "count", "split", mr_flow_sum, NULL, NULL, NULL), "count");
    try(mr_flow_sink(f, "out", "count", add_up, &sum, NULL), "sink");
    try(mr_flow_start(f), "start");
    try(mr_flow_wait(f, MR_FOREVER), "wait");
    try(mr_flow_close(f), "close");
    if (sum != words)
        must(-1, "words", "the sum is not right");
}

static int remove_one(const char *path, const struct stat *stat, int type, struct FTW *at) {
    (void)stat, (void)type, (void)at;
    return remove(path);
}

int main(int argc, char **argv) {
    const char *url = argc > 1 ? argv[1] : "mem:", *dir = NULL;
    uint64_t words = argument(argc, argv, 2, 2000000), repeats = argument(argc, argv, 3, 3);
    mr_options o = { .sync = argc > 4 ? argv[4] : "interval:50" };
    char path[] = "/tmp/millrace-words-XXXXXX";
    if (strncmp(url, "file:", 5) == 0)
        dir = url + 5;
    close(mkstemp(path));
    must(words_write(path, words), path, "cannot be written");
    for (uint64_t i = 0; i < repeats; i++) {
        mr *m;
        try(mr_open(url, &o, &m), "open");
        struct lap start = lap_begin();
        count_words(m, path, words);
        try(mr_close(m), "close");
        lap_tell("word", lap_end(start), words);
        if (dir)
            nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    }
    printf("rss_bytes %" PRIu64 "\n", rss_bytes());
    remove(path);
    return 0;
}
