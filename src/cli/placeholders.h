// Placeholders: the words of a command, with parts of a line in their places.
//
//     {}   the line                {.}   without its extension     {key}  its key
//     {/}  its last component      {//}  the directory before it   {#}    its number, from 1
//     {/.} that, without its extension                             {id}   the same: that of a job
#ifndef CLI_PLACEHOLDERS_H
#define CLI_PLACEHOLDERS_H

#include "base/buffer.h"

struct template_word {
    char *text;   // owned
    bool fixed;   // no placeholder is looked for in it
    bool guarded; // refused for a line with which it begins with - or +: see script_reads_options
};

struct template {
    struct template_word *words; // owned; `count` of them
    size_t count;
    unsigned variables;  // bits: which placeholders become variables, for a shell's script
    bool append;         // no place for anything: the line comes behind the last word …
    bool append_guarded; // … and is guarded
    bool takes_line;     // {} is in it
    bool uses_key;       // {key} is in it
    bool varies;         // a placeholder is in the first word, the command itself
};

struct parts {
    mr_bytes line, key;
    uint64_t number;
    bool several; // the line is several, with `delimiter` between them; see template_check_several
    char delimiter;
};

// With `input` the line goes elsewhere: it is then never appended. Placeholders in the script of a
// shell become variables of the command's environment; MR_EINVAL: one would become part of a script
// (see scripts.h), and the sentence names the way out. MR_ENOMEM. A zeroed template may be closed,
// too.
int template_open(const char *const *words, bool input, struct template *out);
void template_close(struct template *);

// Whether it has a place for several lines: none, so that they are appended, or words that are {}
// and no more, which become a word for each line. MR_EINVAL with the way out.
int template_check_several(const struct template *);

// A command with everything in its place. Zero is a valid start; to be used again and again.
struct filled {
    struct buffer text, pointers;
    const char *const *argv, *const *variables; // end with NULL
};

// Fills `out` for a line; `variable`, "NAME=value", is the first of its variables. MR_EINVAL: a
// part has a 0 byte, or would be an option of a program that could take it for a script; MR_ENOMEM.
int template_fill(const struct template *, const struct parts *, const char *variable,
                  struct filled *out);

void filled_finish(struct filled *);

// Looks for a command, in PATH unless it has a slash. Starting it may still fail. MR_EINVAL: there
// is none, or it is not executable.
int program_find(const char *name);

#endif
