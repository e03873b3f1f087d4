// Screen: the whole terminal as a picture that is drawn anew again and again, and the keys that are
// pressed meanwhile.
//
//     screen_begin ─► screen_start ─ put, put, next, put … ─ foot, put … ─ screen_show ─►
//     screen_key ─► … ─► end
//
// A picture is made in memory and written by one call, over the one before it, so nothing flickers;
// its lines are cut where the terminal ends. All that is needed of a terminal is what every one of
// them understands since the VT100, so there is no library for it here. One thread.
#ifndef CLI_TOP_SCREEN_H
#define CLI_TOP_SCREEN_H

#include "base/buffer.h"

#include <stdbool.h>
#include <termios.h>

enum style { STYLE_PLAIN, STYLE_BOLD, STYLE_DIM, STYLE_BAD, STYLE_GOOD, STYLE_CHOSEN };

enum key {
    KEY_NONE = 0, // none is pressed; any other key is its letter
    KEY_ENTER = '\r',
    KEY_ESCAPE = 27,
    KEY_UP = 256,
    KEY_DOWN,
    KEY_PAGE_UP,
    KEY_PAGE_DOWN,
};

struct screen {
    int rows, columns;  // of the terminal, when the picture was begun; but for its foot
    int row, column;    // where the next text goes
    int foot;           // lines that are kept for the end of the picture
    bool coloured;      // styles are seen
    struct buffer text; // the picture
    struct termios before;
    uint8_t typed[64]; // keys that were read, and not asked for yet
    size_t typed_used, typed_size;
};

// Takes the terminal over; stdin and stdout must be one. MR_EIO: it cannot be.
int screen_begin(struct screen *);
// Gives it back as it was.
void screen_end(struct screen *);

void screen_start(struct screen *, int foot);
void screen_foot(struct screen *); // its lines come next, however many the others were
void screen_put(struct screen *, enum style, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
// As much of the text as has so many letters, and blanks behind it up to there.
void screen_cell(struct screen *, enum style, const char *text, int width);
void screen_next(struct screen *); // the next line begins
int screen_show(struct screen *);  // MR_EIO, MR_ENOMEM

// The next key that was pressed.
int screen_key(struct screen *);
// Whether this one, a letter, is among those that were pressed and not asked for yet.
bool screen_is_typed(struct screen *, int key);

#endif
