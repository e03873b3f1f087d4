// Yaml: reads a file into nodes with their places, and mappings by a table of fields.
//
//     { size: 100, slide: 10 }        a row of `struct field` for each name that may stand there:
//       └ name └ value                how its value is read, and whether it makes a node what it is
//
// It uses libyaml, which reports the place of everything: mistakes that are found later, in the
// graph or in files, are printed with their line and column, too. plan_refuse has printed whatever
// is refused here. One thread.
#ifndef CLI_FLOW_YAML_H
#define CLI_FLOW_YAML_H

#include "cli/flow/plan.h"

#include <yaml.h>

// Reads the file of the plan. False: it has mistakes, which were printed.
bool document_load(struct plan *);
void document_free(struct plan *);

struct place place_of(const yaml_node_t *);
yaml_node_t *node_at(struct plan *, int index);

// The text of a scalar, and one that is not empty; `what` names it. NULL: it is refused.
const char *text_of(struct plan *, const yaml_node_t *, const char *what);
const char *word_of(struct plan *, const yaml_node_t *, const char *what);

// From 1 to `most`. False: it is refused.
bool number_of(struct plan *, const yaml_node_t *, const char *what, uint64_t most, uint64_t *out);

// One of some words: its index; -1: it is refused.
int choice_of(struct plan *, const yaml_node_t *, const char *what, const char *const *words,
              size_t count);

struct field {
    const char *name;
    void (*read)(struct plan *, struct flow_node *, const yaml_node_t *value);
    enum flow_verb verb; // VERB_NONE: it does not make the node what it is
};

// Reads each pair by its row; `fields` ends with an empty one.
void read_mapping(struct plan *, struct flow_node *, const struct field *fields, const char *what,
                  const yaml_node_t *);

#endif
