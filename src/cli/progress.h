// Progress: what a command draws on stderr while it works, a line or several, each time over what
// was drawn before:
//
//     june [######..............] read 5000  waiting 800  running 8  45.2/s  2m03s left
//
// A process draws one text at a time, as it has one terminal. `complain` takes it off before it
// writes. Any thread may call anything here: the lock of stderr guards it.
#ifndef CLI_PROGRESS_H
#define CLI_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PROGRESS_MS = 200, PROGRESS_TEXT = 4096 };

// Whether it is time to draw: not in the first half second after the first call, then every
// PROGRESS_MS, and never where stderr is no terminal or NO_COLOR is set.
bool progress_is_due(void);

// A text that is put together. Zero is a valid start; what does not fit is left out.
struct progress_text {
    char text[PROGRESS_TEXT];
};

void progress_add(struct progress_text *, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void progress_add_bar(struct progress_text *, double share);    // "[#####...............]"
void progress_add_left(struct progress_text *, double seconds); // "  2m03s left"

// Draws it. Lines are cut to the terminal's width, and those that exceed its height left out.
void progress_show(const struct progress_text *);
void progress_hide(void);  // takes it off …
void progress_again(void); // … and draws it again
void progress_clear(void); // takes it off for good

// The two usual texts, drawn when it is time: "copying [####................] 3.2 MiB of 17.0 MiB"
// and "300 lines pushed".
void progress_bytes(const char *doing, uint64_t done, uint64_t total);
void progress_count(uint64_t count, const char *what);

#endif
