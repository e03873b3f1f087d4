// Show: prints replies, as tables or as JSON.
//
//     STAGE  WAITING  RUNNING  OLDEST  HELD BY
//     mail        12        3    4.2s  -
//
// Numbers are aligned right, texts left. If a table is wider than the terminal its widest texts are
// cut.
#ifndef CLI_SHOW_H
#define CLI_SHOW_H

#include "cli/cli.h"
#include "cli/json.h"
#include "wire/replies.h"

// The value behind this one and all that is in it.
const struct response_value *value_next(const struct response_value *);

enum shape {
    SHAPE_TEXT,
    SHAPE_NUMBER,
    SHAPE_BAD,    // a number that is red unless it is 0
    SHAPE_OPEN,   // a number that is not known while it is below 0
    SHAPE_AGE,    // milliseconds
    SHAPE_RATE,   // of a second
    SHAPE_SIZE,   // bytes
    SHAPE_MOMENT, // Unix time in milliseconds; below 0: none
    SHAPE_REASON, // the text of the last one in an array of reasons
    SHAPE_PROGRESS,
    SHAPE_SPAN, // milliseconds; 0: none
    SHAPE_FLAG, // "yes", or none
    SHAPE_WHEN, // of a row about a schedule: its cron expression, or "every 30s"
};

struct column {
    size_t field;      // its offset in the struct of the reply
    const char *title; // the last column of a table has none
    enum shape shape;
};

// Any reply, with the names of the wire.
void show_json_value(struct json *, const char *name, const struct response_value *);

// ---- Replies, as JSON with --json, else as text. All return CLI_DONE. -----------------------

// A map, a line each: durations ("-ms") as ages, an array of reasons as a line for each of them.
enum cli_exit show_map(const struct input *, const struct response_value *map);

// How an array of maps is shown: which fields they have, which of them become columns, and what is
// printed, on stderr, if there are no rows.
struct cli_listing {
    const struct reply_table *fields;
    const struct column *columns;
    const char *none;
};

enum cli_exit show_rows(const struct input *, const struct cli_listing *,
                        const struct response_value *rows);
enum cli_exit show_result(const struct input *, mr_bytes result);

// "3 retried"
enum cli_exit show_count(const struct input *, int64_t count, const char *what);

#endif
