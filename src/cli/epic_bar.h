// A bar that shows the progress of an epic, for commands that wait for it:
//
//     june [######..............] read 5000  waiting 800  running 8  done 4190  dead 2  45.2/s
//     2m03s left
//
// Its command looks at the epic for it: once a second where the bar is drawn, else only when
// nothing has moved for a while, to print once what the epic waits for ("no worker takes from stage
// mail").
#ifndef CLI_EPIC_BAR_H
#define CLI_EPIC_BAR_H

#include "millrace.h"

#include <stdbool.h>

enum { EPIC_HELD = 300 };

struct epic_bar {
    const char *command, *epic;
    double share;  // of the input that was read; below 0: that is not known
    uint64_t read; // lines; 0: another process reads
    uint64_t begun_ms, looked_ms;
    uint64_t ended_before; // when it was looked at first
    bool rich, looked;
    char held[EPIC_HELD]; // what was printed last, where nothing is drawn
};

// Borrows both names.
void epic_bar_init(struct epic_bar *, const char *command, const char *epic);

// How long until the next look is due.
int64_t epic_bar_wait_ms(const struct epic_bar *);

// Something else has moved: where nothing is drawn, the next look can wait.
void epic_bar_moved(struct epic_bar *);

// A look was made; NULL: the epic is not known, it has just begun or was dropped. Draws or prints.
void epic_bar_show(struct epic_bar *, const mr_epic_info *);

// What the jobs of an epic wait for, in words; "" if for nothing. `out` has EPIC_HELD bytes and is
// returned.
const char *epic_held(char *out, const mr_epic_info *);

#endif
