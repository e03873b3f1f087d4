// Route: one row of a table for each path; the row says which commands of the server it becomes,
// and what their replies become.
//
//     POST /api/dead/retry   {"stage": "mail", "max": 3}   ─►   RETRY STAGE mail DEAD MAX 3
//
// The pattern of a command has its words, and in place of some:
//
//     *         what the * of the path stands for
//     $name     the field of that name, which has to be there; ?name: if it is there
//     @name     the numbers in the list of that name, at least one
//     %         every other field: its name and its value
//     ;         another command follows
//
// Behind the last command stand its options: the wire's words for fields of the same names in small
// letters; those with a ! are flags.
#ifndef WEB_ROUTE_H
#define WEB_ROUTE_H

#include "web/form.h"
#include "web/request.h"
#include "wire/response.h"

struct visit;

enum { ROUTE_COMMANDS = 2 }; // of one request at most

// What was answered: the values of each command.
struct replies {
    const struct response_value *of[ROUTE_COMMANDS];
    uint32_t count;
};

struct route {
    enum http_method method; // GET is also HEAD
    const char *path;        // with a * for one part of it
    const char *commands;    // NULL: none
    const char *options;     // with blanks between
    const char *member;      // what the reply is called in the answer; NULL: ok
    // Answers otherwise than that. The first reply is no error.
    void (*answer)(struct visit *, const struct replies *);
    bool open;     // to those without a token, too
    uint32_t most; // bytes of a request's body; 0: WEB_BODY_SMALL
};

// The row for a path. NULL: there is none, and `*out_methods` has a bit for each method it has.
const struct route *route_find(enum http_method, mr_bytes path, uint32_t *out_methods);

// What the head of a request says of the row's first command: its name and, if the path names what
// it is about, that. Returns how many words these are, into `text`. MR_EINVAL, MR_ENOMEM.
int route_head(const struct route *, mr_bytes path, struct buffer *text, mr_bytes out_words[2]);

// Runs the commands of the row by `run`. The form has been read; it holds what `part` was, too.
// MR_EINVAL: a field is missing, or not known; MR_ENOMEM. Nothing was run then.
int route_run(const struct route *, mr_bytes path, struct form *,
              void (*run)(void *arg, const mr_bytes *words, uint32_t count), void *arg);

#endif
