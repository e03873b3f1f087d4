// Numbers in the protocol: decimal digits, no sign, no leading zeros. Every length, count and id
// goes through here, so this is the hottest code of the folder.
#ifndef WIRE_NUMBER_H
#define WIRE_NUMBER_H

#include "millrace.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    NUMBER_DIGITS = 20,     // of UINT64_MAX
    NUMBER_DIGITS_SAFE = 19 // this many never overflow 64 bits
};

// "\r\n" at `text`, where two bytes may be read.
static inline bool number_is_line_end(const uint8_t *text) {
    return memcmp(text, "\r\n", 2) == 0;
}

// number_read for any number.
int number_read_long(const uint8_t *text, size_t size, uint64_t most, uint64_t *out);

// Reads a number of at most `most` (no more than INT64_MAX + 1) and the CR LF behind it. Returns
// the bytes used; 0: more are needed; MR_ETOOBIG: it is, or can only become, larger than `most`;
// MR_EINVAL: not a number. Sets no error text: only the caller knows what the number means.
static inline int number_read(const uint8_t *text, size_t size, uint64_t most, uint64_t *out) {
    // Nearly all have one digit, most others two.
    if (size >= 4) {
        uint64_t first = (uint8_t)(text[0] - '0'), second = (uint8_t)(text[1] - '0');
        if (number_is_line_end(text + 1) && first <= 9 && first <= most) {
            *out = first;
            return 3;
        }
        uint64_t both = first * 10 + second;
        if (number_is_line_end(text + 2) && first - 1 < 9 && second <= 9 && both <= most) {
            *out = both;
            return 4;
        }
    }
    uint64_t number; // `out` may stay in a register
    int used = number_read_long(text, size, most, &number);
    if (used > 0)
        *out = number;
    return used;
}

// All of `text` as a number: an id, a count of milliseconds. MR_EINVAL (without a sentence): it is
// none, or beyond 64 bits.
int number_parse(mr_bytes text, uint64_t *out);

// How many digits `number` has.
static inline size_t number_size(uint64_t number) {
    for (size_t size = 1;; size += 4, number /= 10000) {
        if (number < 100)
            return size + (number >= 10);
        if (number < 10000)
            return size + 2 + (number >= 1000);
    }
}

extern const char number_pairs[201]; // "00" to "99"

// Writes the digits, `size` of them, as number_size says, and returns where they end.
static inline uint8_t *number_write_sized(uint8_t *to, uint64_t number, size_t size) {
    for (uint8_t *at = to + size; number >= 100; number /= 100)
        memcpy(at -= 2, number_pairs + number % 100 * 2, 2);
    if (number >= 10)
        memcpy(to, number_pairs + number * 2, 2);
    else
        *to = (uint8_t)('0' + number);
    return to + size;
}

static inline uint8_t *number_write(uint8_t *to, uint64_t number) {
    if (number >= 10)
        return number_write_sized(to, number, number_size(number));
    *to = (uint8_t)('0' + number);
    return to + 1;
}

// Writes a line such as "$5\r\n" and returns where it ends.
static inline uint8_t *number_line_write(uint8_t *to, char kind, uint64_t number) {
    *to = (uint8_t)kind;
    to = number_write(to + 1, number);
    memcpy(to, "\r\n", 2);
    return to + 2;
}

// The size of such a line.
static inline size_t number_line_size(uint64_t number) {
    return 1 + number_size(number) + 2;
}

#endif
