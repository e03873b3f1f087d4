// Screen: draws the whole terminal again and again, and reads the keys that are pressed meanwhile.
//
//     screen_begin ─► screen_start ─ put, put, next, put … ─ foot, put … ─ screen_show ─►
//     screen_key ─► … ─► end
//
// A picture is made in memory and written by one call, over the one before it, so nothing flickers;
// its lines are cut where the terminal ends. The control sequences are those of the VT100, which
// every terminal understands, so no library is needed. One thread.
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
    bool coloured;      // styles are visible
    struct buffer text; // the picture
    struct termios before;
    uint8_t keys[64]; // keys that were read, and not returned yet
    size_t keys_used, keys_size;
};

// Takes over the terminal; stdin and stdout must be one. MR_EIO: that fails.
int screen_begin(struct screen *);
// Restores it.
void screen_end(struct screen *);

void screen_start(struct screen *, int foot);
void screen_foot(struct screen *); // the lines at the bottom come next
void screen_put(struct screen *, enum style, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
// As much of the text as has so many letters, and blanks behind it up to there.
void screen_cell(struct screen *, enum style, const char *text, int width);
void screen_next(struct screen *); // the next line begins
int screen_show(struct screen *);  // MR_EIO, MR_ENOMEM

// The next key that was pressed.
int screen_key(struct screen *);
// Whether this key, a letter, is among those that were read and not returned yet.
bool screen_has_key(struct screen *, int key);

#endif
