// Route: a table with a row for each path. A row has the commands that the request runs, and how
// their replies become the response.
//
//     POST /api/dead/retry   {"stage": "mail", "max": 3}   ─►   RETRY STAGE mail DEAD MAX 3
//
// A command is written as its words, with these placeholders:
//
//     *         the part of the path that * matches
//     $name     the value of the field `name`, which is required; ?name: an optional one
//     @name     the numbers in the list `name`, at least one
//     &name     the value of the field `name`, or the items of the list `name`s
//     ~name     the fields id and token, or those of each object in the list `name`
//     +name     an EMIT for each object in the list `name`, if there is one
//     %         every other field: its name and its value
//     ;         another command follows
//
// `options` lists the options of the last command: fields whose names are those of the options, in
// lower case; those with a ! are flags.
#ifndef WEB_ROUTE_H
#define WEB_ROUTE_H

#include "web/form.h"
#include "web/history.h"
#include "web/request.h"
#include "wire/response.h"

struct web_connection;
struct body;

enum { ROUTE_COMMANDS = 2 }; // at most, per request

// The replies of the commands.
struct replies {
    const struct response_value *of[ROUTE_COMMANDS];
    uint32_t count;
};

struct route {
    enum http_method method; // GET includes HEAD
    const char *path;        // with a * for one part of it
    const char *commands;    // NULL: none
    const char *options;     // separated by blanks
    const char *member;      // the name of the reply in the response; NULL: {"ok": true}
    const char *const *rows; // names of the values in each array of the reply: see wire/json.h
    bool wraps;              // bytes in the response become {"base64": …}
    bool named;              // the field `name` is the client's name
    const char *type;        // of the body; NULL: JSON
    // Responds instead, if it is not NULL: with a small body. The first reply is not an error.
    void (*answer)(struct web_connection *, const struct replies *);
    // Writes the body instead, in pieces (see body.h). True: it is complete.
    bool (*write)(struct web_connection *, struct body *, size_t *left);
    void (*send)(struct web_connection *); // sends the body instead
    bool open;                             // needs no token
    enum history_span span;                // of a history
    uint32_t most; // largest body of the request, in bytes; 0: WEB_BODY_SMALL
};

// The row for a path. NULL: there is none; `*out_methods` then has a bit for each method that the
// path does have.
const struct route *route_find(enum http_method, mr_bytes path, uint32_t *out_methods);

// The first words of the row's first command, as far as they are known from the head of the
// request: its name and, if the path has it, its first argument. Returns the number of words; they
// point into `text`. MR_EINVAL, MR_ENOMEM.
int route_head(const struct route *, mr_bytes path, struct buffer *text, mr_bytes out_words[2]);

// Calls `run` with each command of the row. The form has been read; its text also holds the decoded
// part of the path. MR_EINVAL: a field is missing or unknown; MR_ENOMEM. Then no command was run.
int route_run(const struct route *, mr_bytes path, struct form *,
              void (*run)(void *arg, const mr_bytes *words, uint32_t count), void *arg);

#endif
