// Bytes: borrowed memory with a size; compared and hashed by content.
#ifndef BASE_BYTES_H
#define BASE_BYTES_H

#include "millrace.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct hash128 {
    uint64_t low, high;
};

static inline bool bytes_equal(mr_bytes a, mr_bytes b) {
    return a.size == b.size && (a.size == 0 || memcmp(a.data, b.data, a.size) == 0);
}

// The last bytes.
static inline mr_bytes bytes_tail(mr_bytes b, size_t size) {
    return (mr_bytes){ size ? (const char *)b.data + (b.size - size) : NULL, size };
}

static inline mr_bytes bytes_of(const void *data, size_t size) {
    return (mr_bytes){ data, size };
}

// Whether the text is this word, whose letters are small, in small or capital letters.
bool bytes_are_word(mr_bytes text, const char *word);

uint64_t bytes_hash(mr_bytes, uint64_t seed);
struct hash128 bytes_hash128(mr_bytes, uint64_t seed);

// Spreads the bits of a number over a 32-bit hash.
static inline uint32_t number_hash(uint64_t n) {
    n = (n ^ n >> 32) * UINT64_C(0x9e3779b97f4a7c15);
    return (uint32_t)(n >> 32);
}

#endif
