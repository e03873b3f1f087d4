// Hashing is xxh3's: fast on short keys, good on all of them.
#include "base/bytes.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

uint64_t bytes_hash(mr_bytes b, uint64_t seed) {
    return XXH3_64bits_withSeed(b.data, b.size, seed);
}

struct hash128 bytes_hash128(mr_bytes b, uint64_t seed) {
    XXH128_hash_t h = XXH3_128bits_withSeed(b.data, b.size, seed);
    return (struct hash128){ h.low64, h.high64 };
}

bool bytes_are_word(mr_bytes text, const char *word) {
    const uint8_t *letters = text.data;
    size_t i = 0;
    for (; i < text.size && word[i]; i++) {
        bool is_capital = letters[i] >= 'A' && letters[i] <= 'Z';
        if ((is_capital ? letters[i] | 0x20 : letters[i]) != word[i])
            break;
    }
    return i == text.size && !word[i];
}
