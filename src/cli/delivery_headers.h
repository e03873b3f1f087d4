// Headers of a delivery: those that the command line gives, and those that describe the job:
//
//     Millrace-Id: 17              the same in every attempt: a receiver that has seen it can skip
//     it Millrace-Stage: mail Millrace-Key: ann            unless there is none Millrace-Attempt: 1
//     Millrace-Deadline-Ms: 5000   what is left, if there is a deadline
//     Millrace-Meta: …             unless there is none
//     traceparent: 00-…            if the metadata is one, or a JSON object with one; so tracestate
//
// Key and metadata may be any bytes: all but printable ASCII, and %, are %XX. Pure, but for files
// of headers.
#ifndef CLI_DELIVERY_HEADERS_H
#define CLI_DELIVERY_HEADERS_H

#include "millrace.h"

// Calls `each` with every line "NAME: VALUE" that an option --header stands for: itself, or the
// lines of a file (@FILE). Returns what `each` has, if that is negative. MR_EINVAL: a line is not a
// header, or one that deliveries set themselves; MR_EIO.
int header_option_read(const char *value, int (*each)(const char *line, void *arg), void *arg);

// Calls `each` with every header of the job. Returns what `each` has, if that is negative.
int job_headers(const mr_job *, int (*each)(const char *line, void *arg), void *arg);

#endif
