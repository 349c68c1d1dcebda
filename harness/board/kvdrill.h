/* kvdrill.h - the engine contract of kvdrill, in C.
 *
 * A program that links (or loads) libkvdrill.so and calls kvdrill_attach() can be driven by a
 * drill: its named moments can be observed, held, failed, skipped or crashed, its commands called,
 * its clock moved, and its last moments read after it died. `CONTRACT.md` beside this file is the
 * page to read first; `example_engine.c` is a whole engine in about sixty lines.
 *
 * What passes between a drill and a process is one shared mapping, the board, and one eventfd.
 * Both are inherited; the environment names them:
 *   KVDRILL_BOARD=<board fd>,<wake fd>      absent: not a drill; every call here is then harmless
 *   KVDRILL_PROCESS=<name in the scenario>
 *
 * Threads: every function may be called from any thread unless it says otherwise.
 * Ownership: strings are copied, unless it says "static".
 */
#ifndef KVDRILL_H_
#define KVDRILL_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

#define KVDRILL_CONTRACT_VERSION 1

/* ---- Named moments ------------------------------------------------------------------------- */

enum kvdrill_kind {
  KVDRILL_POINT = 0, /* a moment: observe, hold, crash, freeze, call */
  KVDRILL_FAULT = 1, /* a call that may be told to fail; all of the above too */
  KVDRILL_STEP = 2,  /* a protection that may be skipped; all of the above too */
  KVDRILL_NOTE = 3   /* a fact for the checks: never acted on, so it may lie inside a lock */
};

/* One named moment. Static storage: it must outlive the process's last call. Zero the last three.
 */
typedef struct kvdrill_site {
  const char* name;          /* dotted, static: "listener.read.body" */
  uint32_t kind;             /* enum kvdrill_kind */
  uint32_t harness_id;       /* the library's */
  struct kvdrill_site* next; /* the engine's list, see kvdrill_engine.sites */
  void* harness_data;        /* the library's */
} kvdrill_site;

/* Reports that `site` was reached with `key`; returns when the thread may go on. */
void kvdrill_point(kvdrill_site* site, int64_t key);
/* The same; returns the code to fail with, 0 to go on, or KVDRILL_PRETEND: report success (to
 * kvdrill_done() too) without making the call. */
#define KVDRILL_PRETEND INT32_MIN
int32_t kvdrill_fault(kvdrill_site* site, int64_t key);
/* The same; returns 1 to carry the protection out, 0 to leave it out. */
int32_t kvdrill_step(kvdrill_site* site, int64_t key);
/* A fault or step has ended with `result`; the drill sees it as "NAME.done". */
void kvdrill_done(kvdrill_site* site, int64_t key, int64_t result);
/* Records a fact. Never blocks. `text` may be null; up to 4,000 bytes of it are kept. */
void kvdrill_note(kvdrill_site* site, int64_t key, int64_t value, const char* text);

/* The five functions above as a table, for an engine that calls them through one pointer. */
typedef struct kvdrill_hooks {
  uint32_t version; /* KVDRILL_CONTRACT_VERSION */
  void (*point)(kvdrill_site*, int64_t key);
  int32_t (*fault)(kvdrill_site*, int64_t key);
  int32_t (*step)(kvdrill_site*, int64_t key);
  void (*done)(kvdrill_site*, int64_t key, int64_t result);
  void (*note)(kvdrill_site*, int64_t key, int64_t value, const char* text);
} kvdrill_hooks;

/* Makes more sites known (a library loaded later: the fake card does this). The list is kept. */
void kvdrill_add_sites(kvdrill_site* first);

/* ---- The engine ---------------------------------------------------------------------------- */

typedef struct kvdrill_reply kvdrill_reply;
/* Sets what a command answers: one word or line, e.g. "done". Without it: "ok". */
void kvdrill_answer(kvdrill_reply* reply, const char* text);
/* The command failed; the drill sees value "error" and this text. */
void kvdrill_answer_error(kvdrill_reply* reply, const char* text);

typedef struct kvdrill_command {
  const char* name;  /* static */
  const char* about; /* static; one sentence, with the arguments it takes */
  /* Runs on a thread of its own, labelled with the name of the call (or, by a `run` order, on the
   * thread that reached the point). `arguments` is a JSON object's text, "{}" when none.
   * May block; may be called again while it runs. */
  void (*run)(void* engine, const char* arguments, kvdrill_reply* reply);
} kvdrill_command;

typedef struct kvdrill_engine {
  uint32_t version;                /* KVDRILL_CONTRACT_VERSION */
  const char* program;             /* static: "kvworker" */
  const char* const* roles;        /* static, null-terminated: {"worker", 0} */
  const kvdrill_command* commands; /* static, ended by a null name */
  kvdrill_site* sites;             /* all named moments of the program, linked by next */
  void* engine;                    /* handed to every command */
  uint32_t flags;                  /* enum kvdrill_flags, or-ed */
} kvdrill_engine;

enum kvdrill_flags {
  /* Leave SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL alone (no backtrace on the board). */
  KVDRILL_NO_CRASH_HANDLER = 1
};

/* Attaches this process: registers it and its sites, starts the command thread, installs the crash
 * and the stack handler. Called once, from main, before other threads exist.
 * Returns the hook table, or null when no drill is running (then nothing was done). */
const kvdrill_hooks* kvdrill_attach(const kvdrill_engine* engine);
/* 1 while attached to a board (also in a library that did not attach itself). */
int kvdrill_attached(void);
/* If the arguments are exactly "--describe": writes the engine as JSON to standard output (points,
 * faults, steps, notes, commands, roles) and returns 1; otherwise 0. For main's first line. */
int kvdrill_described(int argc, char** argv, const kvdrill_engine* engine);

/* Names the calling thread for the drill ("listener.reactor"). Without it: "thread-<n>". */
void kvdrill_thread(const char* label);
/* Tells the drill a fact about this process, by which steps can refer to it: after
 * kvdrill_announce("socket", path) a client may say connect = "worker". */
void kvdrill_announce(const char* name, const char* value);
/* The process is ready to be drilled: `start` returns. In a drill it returns once what the process
 * holds by then, descriptors and threads, was looked at: what comes later has to be given back. */
void kvdrill_ready(void);
/* One line of the engine's log, for the check clean_logs. severity: 0 info, 1 warning, 2 error. */
void kvdrill_log(int severity, const char* line);
/* Blocks until the drill tells the process to end. Told to return, it gives main's exit code;
 * told to end in another way (exit, _exit, abort, quick_exit), it does so itself.
 * Returns at once with 0 when no drill is running. Call it from main's thread. */
int kvdrill_serve(void);

/* ---- Time ---------------------------------------------------------------------------------- */

/* 1 when the drill moves this process's clock by hand. */
int kvdrill_clock_is_manual(void);
/* Nanoseconds: the drill's clock, or CLOCK_MONOTONIC. */
int64_t kvdrill_now(void);
/* `moved(user, now)` is called on the command thread after every move of a manual clock; the drill
 * goes on when it has returned. One callback per process; set it before kvdrill_ready(), also
 * before kvdrill_attach(). */
void kvdrill_on_clock(void (*moved)(void* user, int64_t now), void* user);

#pragma GCC visibility pop
#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* KVDRILL_H_ */
