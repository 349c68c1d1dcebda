/* A whole engine: a worker that echoes what one peer after the other sends to its unix socket.
 * It needs nothing but kvdrill.h; CONTRACT.md explains each part. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "harness/board/kvdrill.h"

/* Its named moments, linked by hand. */
static kvdrill_site unlink_step = {"echo.stop.unlink", KVDRILL_STEP, 0, NULL, NULL};
static kvdrill_site send_fault = {"echo.send", KVDRILL_FAULT, 0, &unlink_step, NULL};
static kvdrill_site received = {"echo.received", KVDRILL_POINT, 0, &send_fault, NULL};

static struct sockaddr_un place = {AF_UNIX, ""};
static int listening = -1;
static pthread_t thread;

static void* serve(void* unused) {
  kvdrill_thread("echo");
  for (int peer; (peer = accept(listening, NULL, NULL)) >= 0; close(peer)) {
    char bytes[256];
    ssize_t n = read(peer, bytes, sizeof bytes);
    if (n <= 0) continue;
    kvdrill_point(&received, n);               /* a drill may hold the thread here, crash it, ... */
    int error = kvdrill_fault(&send_fault, n); /* ... or make this fail, or pretend */
    /* Without the flag a peer that went away ends the process by SIGPIPE. */
    if (error == 0 && send(peer, bytes, (size_t)n, MSG_NOSIGNAL) != n) error = -1;
    if (error == KVDRILL_PRETEND) error = 0;
    kvdrill_done(&send_fault, n, error);
  }
  return unused;
}

static void shut_down(void* engine, const char* arguments, kvdrill_reply* reply) {
  (void)engine;
  (void)arguments;
  shutdown(listening, SHUT_RDWR); /* ends accept() */
  pthread_join(thread, NULL);
  close(listening);
  if (kvdrill_step(&unlink_step,
                   0)) { /* a protection: a drill may leave it out, to see who notices */
    unlink(place.sun_path);
    kvdrill_done(&unlink_step, 0, 0);
  }
  kvdrill_answer(reply, "done");
}

static const char* const roles[] = {"worker", NULL};
static const kvdrill_command commands[] = {
    {"shutdown", "Stops serving and answers done. No arguments.", shut_down}, {NULL, NULL, NULL}};
static const kvdrill_engine self = {
    KVDRILL_CONTRACT_VERSION, "example_engine", roles, commands, &received, NULL, 0};

static const char* argument(int argc, char** argv, const char* name, const char* otherwise) {
  for (int i = 1; i + 1 < argc; ++i) {
    if (strcmp(argv[i], name) == 0) return argv[i + 1];
  }
  return otherwise;
}

int main(int argc, char** argv) {
  if (kvdrill_described(argc, argv, &self)) return 0;
  kvdrill_attach(&self);
  snprintf(place.sun_path, sizeof place.sun_path, "%s/%s.sock",
           argument(argc, argv, "--socket-root", "/tmp"), argument(argc, argv, "--name", "echo"));
  listening = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (bind(listening, (struct sockaddr*)&place, sizeof place) != 0 || listen(listening, 16) != 0 ||
      pthread_create(&thread, NULL, serve, NULL) != 0) {
    perror(place.sun_path);
    return 1;
  }
  kvdrill_announce("socket", place.sun_path);
  kvdrill_ready();
  return kvdrill_serve();
}
