// The files of the page, which are part of the program.
#ifndef WEB_PAGE_H
#define WEB_PAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct page_file {
    const char *path;    // "/", "/assets/index-1a2b3c.js"
    const char *type;    // "text/html; charset=utf-8"
    const char *etag;    // of the content, without quotes
    const uint8_t *data; // compressed if gzip
    size_t size;
    bool gzip;
    bool lasting; // its name changes with its content
};

extern const struct page_file page_files[]; // ends with a row without a path

#endif
