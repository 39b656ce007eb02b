/* SPDX-License-Identifier: Apache-2.0 */
/* globalq.h is C99, and its example works: three processes of one machine agree on a mean. */
#include <globalq/c/globalq.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { processes = 3, length = 1000, steps = 4 };

static int fail(char const* what) {
  fprintf(stderr, "%s: %s\n", what, globalq_error());
  return 1;
}

static int work(char const* name, int rank) {
  globalq_workers* workers = NULL;
  globalq_call* mean = NULL;
  globalq_settings settings = {sizeof settings, "cgx:8"};
  globalq_report report = {sizeof report};
  float gradient[length];
  uint64_t step;
  int i;
  if (globalq_named_memory_create(name, rank, processes, 60, &workers) != GLOBALQ_OK) return fail("workers");
  if (globalq_call_create(workers, GLOBALQ_MEAN, &settings, NULL, 0, &mean) != GLOBALQ_OK)
    return fail("mean");
  for (step = 0; step < steps; ++step) {
    globalq_vector const v = {gradient, gradient, length, GLOBALQ_FLOAT32};
    for (i = 0; i < length; ++i) gradient[i] = (float)((i + rank) % 7);
    if (globalq_call_run(mean, &v, 1, step) != GLOBALQ_OK) return fail("run");
    for (i = 0; i < length; ++i) {
      double const exact = ((i % 7) + ((i + 1) % 7) + ((i + 2) % 7)) / 3.0;
      /* three roundings of levels 6 / 127 apart, two of sums */
      if (fabs(gradient[i] - exact) > 0.15) {
        fprintf(stderr, "value %d is %g, and the mean %g\n", i, gradient[i], exact);
        return 1;
      }
    }
  }
  if (globalq_call_report(mean, &report) != GLOBALQ_OK) return fail("report");
  if (report.calls != steps || report.values != steps * length || report.bytes_sent == 0 ||
      globalq_bytes_sent(workers) < report.bytes_sent) {
    fprintf(stderr, "a report of %d calls\n", (int)report.calls);
    return 1;
  }
  globalq_call_destroy(mean);
  globalq_workers_destroy(workers);
  return 0;
}

int main(void) {
  char name[64];
  int rank, status, failed = 0;
  if (globalq_interface() != GLOBALQ_C_INTERFACE || strlen(globalq_version()) < 5) return 1;
  snprintf(name, sizeof name, "c-%ld", (long)getpid());
  for (rank = 0; rank < processes; ++rank) {
    pid_t const child = fork();
    if (child == 0) exit(work(name, rank));
    if (child < 0) return 1;
  }
  for (rank = 0; rank < processes; ++rank) failed |= wait(&status) < 0 || status != 0;
  return failed;
}
