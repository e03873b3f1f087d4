// Placeholders: the words of a command, with parts of a line in their places.
//
//     {}   the line                {.}   without its extension     {key}  its key
//     {/}  its last component      {//}  the directory before it   {#}    its number, from 1
//     {/.} that, without its extension                             {id}   the same: that of a job
#ifndef CLI_PLACEHOLDERS_H
#define CLI_PLACEHOLDERS_H

#include "base/buffer.h"

struct template {
    const char *const *words; // end with NULL; borrowed
    bool append;              // no place for anything: the line comes behind the last word
    bool uses_key;            // {key} is in it
    bool varies;              // a placeholder is in the first word, the command itself
};

struct parts {
    mr_bytes line, key;
    uint64_t number;
};

// With `input` the line goes elsewhere: it is then never appended.
struct template template_of(const char *const *words, bool input);

// A command with everything in its place. Zero is a valid start; to be used again and again.
struct filled {
    struct buffer text, argv;
};

// `out_argv` ends with NULL and lives in `room`. MR_EINVAL: a part has a 0 byte; MR_ENOMEM.
int template_fill(const struct template *, const struct parts *, struct filled *room,
                  const char *const **out_argv);

void filled_finish(struct filled *);

// Whether there is such a command, in PATH unless it has a slash. What only the start can tell is
// told then.
bool command_is_there(const char *name);

#endif
