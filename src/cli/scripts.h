// Scripts: which words of a command another program reads as a script, and how a placeholder may
// stand in one.
//
//     sh -c 'mv {} done/'    ─►  sh -c 'mv "${MILLRACE_BODY}" done/'    the value is a variable
//     python3 -c 'f("{}")'   ─►  refused: the line would become part of a program
//
// Text from a job never becomes part of a script: otherwise a client that may push jobs, or the
// author of a line, could run commands. In scripts of the shells that read ${NAME} a placeholder
// becomes a variable, as (part of) an argument of a command or the file of a redirection behind it.
// Every command of such a script must have a plain word as its name. A placeholder is refused where
// the shell would not expand it (single quotes), would evaluate its value again (eval, arithmetic,
// the script of another program), assign it (x={}, for x in {}), or run it ({}, timeout 5 {}).
//
// Programs are recognised by their names, also with a version behind; `scripts.c` has the table,
// which knows some of their options. Behind an option that it does not know, and if any word there
// may be an option that names a script, a placeholder is refused. A program that is not in the
// table gets its words as they are.
#ifndef CLI_SCRIPTS_H
#define CLI_SCRIPTS_H

#include "base/buffer.h"

enum script_kind {
    SCRIPT_NONE,
    SCRIPT_SHELL, // placeholders can become variables
    SCRIPT_OTHER,
};

// Whether `words[index]` is, or has in it, a script; `index` may be that of the NULL, for a word
// that is to be appended. `out_program` is the name of the program that reads it.
enum script_kind script_kind_of(const char *const *words, size_t index, const char **out_program);

// Whether `words[index]`, `index` as above, stands where such a program still reads options: a
// value that begins with - there could name a script (python3 {}, with the line -cCODE).
bool script_reads_options(const char *const *words, size_t index);

// The variable for the placeholder that `text` begins with, and the placeholder's size; NULL: none.
typedef const char *script_variable(const char *text, size_t *out_size);

// Appends a shell's script and its 0 byte, with variables for placeholders. MR_EINVAL: one cannot
// stand where it does, and the sentence says why and shows the place; MR_ENOMEM.
int script_rewrite(const char *script, script_variable *, struct buffer *out);

// Refuses a placeholder in a script. Returns MR_EINVAL.
int script_refuse(const char *program, const char *why);

#endif
