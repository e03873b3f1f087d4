// A peer of work.c on disk: a queue as a table of SQLite, as programs make one. A push is an
// INSERT, each in a transaction of its own; a worker's thread takes the oldest job whose key no
// other thread has, marks it, and deletes it when it is done: a transaction each. WAL and
// synchronous=FULL, so that a push is on disk when it has returned.
//
//     sqlite FILE [KEYS [JOBS [RUNNERS]]]
//
// JOBS are pushed by as many threads as run them; each thread has a connection of its own.
#include "bench/measure.h"

#include <sqlite3.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

enum { RUNNERS_MOST = 64, BUSY_MS = 60000 };

static const char *file;
static uint64_t keys, jobs, runners;
static _Atomic uint64_t next_push, ran;

static void check(sqlite3 *db, int code, const char *what) {
    must(code == SQLITE_OK || code == SQLITE_DONE || code == SQLITE_ROW ? 0 : -1, what,
         sqlite3_errmsg(db));
}

static void run_sql(sqlite3 *db, const char *sql) {
    check(db, sqlite3_exec(db, sql, NULL, NULL, NULL), sql);
}

static sqlite3 *open_queue(void) {
    sqlite3 *db;
    check(NULL, sqlite3_open(file, &db), "open");
    check(db, sqlite3_busy_timeout(db, BUSY_MS), "timeout");
    run_sql(db, "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL");
    return db;
}

static sqlite3_stmt *prepare(sqlite3 *db, const char *sql) {
    sqlite3_stmt *statement;
    check(db, sqlite3_prepare_v2(db, sql, -1, &statement, NULL), sql);
    return statement;
}

static void *push_jobs(void *arg) {
    (void)arg;
    static const char body[64];
    sqlite3 *db = open_queue();
    sqlite3_stmt *insert = prepare(db, "INSERT INTO job (key, body) VALUES (?, ?)");
    for (uint64_t i; (i = next_push++) < jobs;) {
        check(db, sqlite3_bind_int64(insert, 1, (sqlite3_int64)(i % keys)), "bind");
        check(db, sqlite3_bind_blob(insert, 2, body, sizeof body, SQLITE_STATIC), "bind");
        check(db, sqlite3_step(insert), "push");
        check(db, sqlite3_reset(insert), "push");
    }
    sqlite3_finalize(insert);
    sqlite3_close(db);
    return NULL;
}

// False: there is none now.
static bool take(sqlite3 *db, sqlite3_stmt *statement, sqlite3_int64 *out_id) {
    int code = sqlite3_step(statement);
    check(db, code, "take");
    bool taken = code == SQLITE_ROW;
    if (taken)
        *out_id = sqlite3_column_int64(statement, 0);
    while (code == SQLITE_ROW)
        code = sqlite3_step(statement);
    check(db, sqlite3_reset(statement), "take");
    return taken;
}

static void *run_jobs(void *arg) {
    (void)arg;
    sqlite3 *db = open_queue();
    sqlite3_stmt *taking =
        prepare(db, "UPDATE job SET running = 1 WHERE id = (SELECT id FROM job AS j "
                    "WHERE running = 0 AND NOT EXISTS (SELECT 1 FROM job WHERE "
                    "key = j.key AND running = 1) ORDER BY id LIMIT 1) RETURNING id");
    sqlite3_stmt *done = prepare(db, "DELETE FROM job WHERE id = ?");
    while (ran < jobs) {
        sqlite3_int64 id;
        if (!take(db, taking, &id)) {
            usleep(100);
            continue;
        }
        check(db, sqlite3_bind_int64(done, 1, id), "bind");
        check(db, sqlite3_step(done), "done");
        check(db, sqlite3_reset(done), "done");
        ran++;
    }
    sqlite3_finalize(taking);
    sqlite3_finalize(done);
    sqlite3_close(db);
    return NULL;
}

int main(int argc, char **argv) {
    must(argc > 1 ? 0 : -1, "arguments", "sqlite FILE [KEYS [JOBS [RUNNERS]]]");
    file = argv[1];
    keys = argument(argc, argv, 2, 1000);
    jobs = argument(argc, argv, 3, 2000);
    runners = argument(argc, argv, 4, 2);
    must(keys && runners && runners <= RUNNERS_MOST ? 0 : -1, "arguments",
         "keys, and 1 to 64 runners");
    sqlite3 *db = open_queue();
    run_sql(db, "CREATE TABLE job (id INTEGER PRIMARY KEY AUTOINCREMENT, key INTEGER, body BLOB, "
                "running INTEGER DEFAULT 0); CREATE INDEX running ON job (key, running)");
    sqlite3_close(db);
    pthread_t threads[2 * RUNNERS_MOST];
    struct lap start = lap_begin();
    for (uint64_t i = 0; i < 2 * runners; i++)
        must(-pthread_create(&threads[i], NULL, i % 2 ? run_jobs : push_jobs, NULL), "thread",
             "none");
    for (uint64_t i = 0; i < 2 * runners; i++)
        pthread_join(threads[i], NULL);
    lap_tell("life", lap_end(start), jobs);
    return 0;
}
