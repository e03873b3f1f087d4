// See route.h. CRC16 is that of XMODEM: polynomial 0x1021, starting from 0, high bit first.
#include "core/route.h"

#include "base/limits.h"

enum { BY_ONCE = 2 }; // seeds hashes of `once` names; part of the format of stores

struct hash128 once_name(mr_bytes stage, mr_bytes key, mr_bytes once) {
    return bytes_hash128(once, bytes_hash(key, bytes_hash(stage, BY_ONCE)));
}

// Four bits at a time: 16 entries, and names are short.
static const uint16_t crc_table[16] = { 0x0000, 0x1021, 0x2042, 0x3063, 0x4084, 0x50a5,
                                        0x60c6, 0x70e7, 0x8108, 0x9129, 0xa14a, 0xb16b,
                                        0xc18c, 0xd1ad, 0xe1ce, 0xf1ef };

// A name that is too long is refused wherever it comes to; meanwhile it must not cost what it would
// to read all of it.
uint32_t route_slot(mr_bytes stage) {
    const uint8_t *p = stage.data;
    uint32_t crc = 0;
    if (stage.size > STAGE_NAME_MOST)
        return 0;
    for (size_t i = 0; i < stage.size; i++) {
        crc = (crc << 4 ^ crc_table[(crc >> 12 ^ p[i] >> 4) & 15]) & 0xffff;
        crc = (crc << 4 ^ crc_table[(crc >> 12 ^ p[i]) & 15]) & 0xffff;
    }
    return crc % ROUTE_SLOTS;
}
