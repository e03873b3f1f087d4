// Plan: a flow as its file describes it, read and checked. --check, --graph and the runner share
// it.
//
//     source ─► step ─┬─► step ─► sink      `from` says where a node's lines come
//                     └─► sink              from, by default from the node before it in the file
//
// Sources come first, then the steps as they stand in the file, then the sinks; `from` only points
// back, so nodes are in the order in which lines pass them. Only `loop` points forward: a cycle
// that is not declared is refused.
//
// A plan's texts belong to the document that it was read from, which it keeps.
#ifndef CLI_FLOW_PLAN_H
#define CLI_FLOW_PLAN_H

#include "cli/keys.h"
#include "cli/yaml.h"
#include "millrace_flow.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum {
    FLOW_NODES = 64, // all together
    FLOW_INPUTS = 16,
    FLOW_WORDS = 256,             // of a command; files of a source
    FLOW_NAME = MR_FLOW_NAME - 5, // bytes of a name, so that NAME--out is one, too
    FLOW_FIELDS = 16,
    FLOW_OPEN_WINDOWS = 1000, // of one key, that overlap
};

enum flow_kind { KIND_SOURCE, KIND_STEP, KIND_SINK };

// What a node is, by its word in the file.
enum flow_verb {
    VERB_NONE,
    VERB_LINES, // of sources: lines of files, or of stdin
    VERB_TAKE,  // the jobs of a stage
    VERB_MAP,   // of steps
    VERB_FLAT_MAP,
    VERB_FILTER,
    VERB_AGGREGATE,
    VERB_CRASH,
    VERB_FILE, // of sinks
    VERB_STDOUT,
    VERB_PUSH, // to a stage
    VERB_NOTHING,
};

// How a step does it.
enum flow_how {
    HOW_COMMAND,
    HOW_FIELDS, // map: some fields, in an order; flat_map: each is a line
    HOW_WORDS,
    HOW_LINES,
    HOW_REGEX, // filter
    HOW_NOT_REGEX,
    HOW_COUNT, // aggregate
    HOW_SUM,
    HOW_MIN,
    HOW_MAX,
    HOW_MEAN,
};

enum flow_mode { MODE_JOB, MODE_FILTER };
enum flow_on_dead { ON_DEAD_SKIP, ON_DEAD_HALT };

// Another node that lines come from: NAME, or NAME:OUTPUT for what its command emits to an output.
struct flow_input {
    const char *name;   // all of it
    size_t name_size;   // up to the colon
    const char *output; // behind it; NULL: there is none
    struct place at;
    size_t node; // its index
};

// The key or value that a step finds in a line; `from` KEY_NONE: it was not given.
struct flow_part {
    struct keys keys;
    const char *text; // as it stands in the file
    bool all;         // the same for every line
};

struct flow_node {
    enum flow_kind kind;
    enum flow_verb verb;
    enum flow_how how;
    const char *name;
    struct place at, verb_at;

    struct flow_input from[FLOW_INPUTS], loop[FLOW_INPUTS];
    size_t from_count, loop_count;

    const char *words[FLOW_WORDS + 1]; // a command, or the files of a source; NULL behind them
    struct place words_at[FLOW_WORDS];
    size_t word_count;
    const char *text; // of the verb where that is one text: a path, a stage, "regex a.*b"
    regex_t regex;    // of a filter
    bool has_regex;
    unsigned fields[FLOW_FIELDS]; // from 1
    size_t field_count;
    double chance; // of a crash

    enum flow_mode mode;
    struct flow_part key, value;
    uint64_t window_size, window_slide; // 0: all lines of a key, with a result at the end
    struct place window_at;
    int64_t timeout_ms;  // 0: none
    uint32_t jobs;       // at once; 0: self-tuned
    uint32_t partitions; // of an aggregate; 0: as the library says
    uint32_t attempts;   // 0: as the stage says
    const char *backoff; // NULL: as the stage says
    enum flow_on_dead on_dead;
    struct place mode_at, value_at, key_at, partitions_at;
    bool has_on_dead;
};

struct plan {
    struct yaml_file file;
    const char *name;
    struct place name_at;
    enum flow_on_dead on_dead; // of steps that do not say
    struct flow_node nodes[FLOW_NODES];
    size_t count;
};

// Reads the file and checks it; mistakes are printed on stderr, each as PATH:LINE:COLUMN: SENTENCE.
// False if there was any. Either way plan_finish must be called.
bool plan_read(struct plan *, const char *path);

// Checks that what the plan names exists: files to read, commands to run, folders to write into. As
// above. The working directory must be that of the flow.
bool plan_check_world(struct plan *);

void plan_finish(struct plan *);

// On stdout: the plan as a drawing, or as JSON.
void plan_draw(const struct plan *);
void plan_print_json(const struct plan *);

// The k-th of the inputs, those of `from` before those of `loop`.
static inline const struct flow_input *node_input(const struct flow_node *n, size_t k) {
    return k < n->from_count ? &n->from[k] : &n->loop[k - n->from_count];
}

const char *verb_word(enum flow_verb);
bool node_is_command(const struct flow_node *);

// Whether every line that reaches the node has a key, from this node or an earlier one. Lines of a
// stage may have one.
bool plan_has_key(const struct plan *, const struct flow_node *);

// Whether this can be the name of a flow, a node or an output.
bool name_is_good(const char *name);

// Finds the nodes that are named, and refuses cycles, unused lines and missing keys.
void plan_connect(struct plan *);

#endif
