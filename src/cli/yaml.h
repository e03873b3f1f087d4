// Yaml: reads a file into nodes with their places, within limits of size, depth and number.
//
// It uses libyaml, which reports the place of everything: mistakes that are found later are printed
// with their line and column, too, as PATH:LINE:COLUMN: SENTENCE on stderr. Whatever is refused
// here was printed. One thread.
#ifndef CLI_YAML_H
#define CLI_YAML_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <yaml.h>

struct place {
    int line, column; // from 1; 0: the file as a whole
};

struct yaml_file {
    const char *path;
    const char *about; // what it describes, for messages: "flow"
    struct yaml_document_s *document;
    unsigned mistakes;
};

// Reads the file of that path. False: it has mistakes, which were printed. Either way document_free
// must be called; texts of nodes are valid until then.
bool document_load(struct yaml_file *);
void document_free(struct yaml_file *);

// Prints a mistake and counts it; after some only counts.
void yaml_refuse(struct yaml_file *, struct place, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
// Prints how many were not printed.
void yaml_report_rest(const struct yaml_file *);

struct place place_of(const yaml_node_t *);
yaml_node_t *node_at(struct yaml_file *, int index);

// The text of a scalar, and one that is not empty; `what` names it. NULL: it is refused.
const char *text_of(struct yaml_file *, const yaml_node_t *, const char *what);
const char *word_of(struct yaml_file *, const yaml_node_t *, const char *what);

// From 1 to `most`. False: it is refused.
bool number_of(struct yaml_file *, const yaml_node_t *, const char *what, uint64_t most,
               uint64_t *out);

// One of some words: its index; -1: it is refused.
int choice_of(struct yaml_file *, const yaml_node_t *, const char *what, const char *const *words,
              size_t count);

// The field that a name of a mapping stands for: its index among `names`, of which there are up to
// 32; it is noted in `seen`. -1: there is no such one, or it was seen before, and it is refused.
int yaml_field_of(struct yaml_file *, const yaml_node_t *name, const char *what,
                  const char *const *names, size_t count, uint32_t *seen);

// Among `count` names the nearest to `name`; NULL: none is near.
const char *name_nearest(const char *name, const char *const *names, size_t count);

#endif
