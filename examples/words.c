// Words: a flow counts the words of a text, once each, although an operator in it crashes half of
// the time. Kill it and run it again with the same directory: it continues where it stopped.
//
//     words [DIR [TEXT]]     counts into DIR.tsv; without TEXT, a verse of its own
#include <ctype.h>
#include <millrace_flow.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char verse[] = "to be or not to be that is the question\n"
                            "whether it is nobler in the mind\n"
                            "or not\n";

static int split(mr_pair line, mr_flow_out *out, void *arg) {
    const char *at = line.value.data, *end = at + line.value.size;
    int err = 0;
    (void)arg;
    while (at < end && err >= 0) {
        const char *word = at;
        while (at < end && isalpha((unsigned char)*at))
            at++;
        if (at > word)
            err = mr_flow_emit(out, (mr_bytes){ word, (size_t)(at - word) }, mr_str("1"));
        else
            at++;
    }
    return err;
}

// Passes words on, and fails every second attempt of a block, after it has emitted them.
static int crash(mr_pair word, mr_flow_out *out, void *arg) {
    (void)arg;
    const mr_job *block = mr_flow_job(out);
    int err = mr_flow_emit(out, word.key, word.value);
    return err >= 0 && mr_job_attempt(block) % 2 ? MR_EAGAIN : err;
}

static int read_verse(uint64_t number, mr_flow_out *out, void *arg) {
    (void)arg;
    return number == 1 ? mr_flow_emit(out, mr_str(""), mr_str(verse)) : MR_FLOW_END;
}

static int build(mr_flow *f, const char *text, const char *table) {
    int err = text ? mr_flow_lines(f, "text", text, NULL)
                   : mr_flow_source(f, "text", read_verse, NULL, NULL);
    mr_operator_options often = { .apart = 1, .backoff = "1ms" };
    if (err >= 0)
        err = mr_flow_flat_map(f, "split", "text", split, NULL, NULL);
    if (err >= 0)
        err = mr_flow_flat_map(f, "crash", "split", crash, NULL, &often);
    if (err >= 0)
        err = mr_flow_aggregate(f, "count", "crash", mr_flow_sum, NULL, NULL, NULL);
    return err < 0 ? err : mr_flow_file(f, "out", "count", table, NULL);
}

// Prints the table and returns how often "be" is in it.
static long show(const char *table) {
    char word[256];
    long count, be = 0;
    FILE *file = fopen(table, "r");
    while (file && fscanf(file, "%255s %ld", word, &count) == 2) {
        printf("%6ld %s\n", count, word);
        be = strcmp(word, "be") == 0 ? count : be;
    }
    if (file)
        fclose(file);
    return be;
}

int main(int argc, char **argv) {
    char url[4096] = "mem:", table[4096] = "/tmp/words.tsv";
    mr *m = NULL;
    mr_flow *f = NULL;
    if (argc > 1) {
        snprintf(url, sizeof url, "file:%s", argv[1]);
        snprintf(table, sizeof table, "%s.tsv", argv[1]);
    }
    int err = mr_open(url, NULL, &m);
    if (err >= 0)
        err = mr_flow_open(m, "words", NULL, &f);
    if (err >= 0)
        err = build(f, argc > 2 ? argv[2] : NULL, table);
    if (err >= 0)
        err = mr_flow_start(f);
    if (err >= 0)
        err = mr_flow_wait(f, MR_FOREVER);
    if (err < 0)
        fprintf(stderr, "%s\n", mr_error());
    mr_flow_close(f);
    mr_close(m);
    return err >= 0 && (show(table) == 2 || argc > 2) ? 0 : 1;
}
