// Output: prints what commands have written, each as a whole, one after another, or in the order of
// their lines. stdout and stderr stay apart.
//
// In order, the output of a line that ends before its turn is held: in memory up to HELD_MEMORY,
// then in a file without a name. At most ORDER_AHEAD lines are read beyond the oldest that was not
// printed, so there is a slot for each. The thread that ends the line whose turn it is prints it,
// and those behind it that have ended.
//
// Any thread may call anything here, after the opening.
#ifndef CLI_RUN_OUTPUT_H
#define CLI_RUN_OUTPUT_H

#include "cli/progress.h"
#include "work/spool.h"

#include <pthread.h>
#include <stdatomic.h>

enum { ORDER_AHEAD = 1024, HELD_MEMORY = 16 << 20, MARK_FAILED = 24 };

// Of a line that has ended: a spool in memory, or a part of the file.
struct held_stream {
    struct spool spool;
    uint64_t at, size; // size 0: not in the file
};

struct held {
    bool there, failed;
    struct held_stream output, errors;
};

struct output {
    bool in_order;
    pthread_mutex_t lock;         // guards what follows, and stdout and stderr
    _Atomic uint64_t printed;     // in order: lines; read without the lock
    uint64_t failed;              // among them
    struct held *slots;           // line n in slot n % ORDER_AHEAD
    size_t memory;                // of what is held there
    int file;                     // -1: none yet
    uint64_t file_end, file_uses; // behind the last part; parts in it
    int mark;                     // a file that notes what was printed; -1: none …
    uint64_t round;               // … of which run
    bool to_terminal;             // stdout is one
    bool within_line;             // the last output had no line end, so that no bar can be drawn
    int broken;                   // why a write has failed, an errno: nothing more is printed then
};

int output_open(struct output *, bool in_order); // MR_ENOMEM
void output_close(struct output *);

// Resumes from what `mark`, a descriptor that the output then owns, notes as printed in `round`,
// but at least from line `least`; and notes it there from now on: lines printed and failed, and
// behind them, from MARK_FAILED on, 8 bytes for each that failed.
void output_resume(struct output *, int mark, uint64_t round, uint64_t least);

// Prints both at once. MR_EIO: stdout cannot be written, now and from now on; `broken`
// says why.
int output_print(struct output *, const struct spool *output, const struct spool *errors);

// Prints both when it is their line's turn; takes them over, whatever it returns. MR_EIO as above;
// MR_ENOMEM, MR_EIO: there is no place to hold them.
int output_hold(struct output *, uint64_t number, bool failed, struct spool *output,
                struct spool *errors);

// Prints "millrace: " and a sentence on stderr, not while output is being printed.
void output_complain(struct output *, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

// The same from the main thread, which must not wait for a thread that is blocked in printing: then
// it prints at once.
void output_try_complain(struct output *, const char *sentence);

// Draws the bar, unless a thread is printing.
void output_bar(struct output *, const struct progress_text *);

#endif
