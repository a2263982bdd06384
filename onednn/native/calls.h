/* Calls of C functions that follow each other. */

/* A call of a function that takes up to four words: those that it does not take are not looked at. */
typedef struct {
  int (*function)(int64_t, int64_t, int64_t, int64_t);
  int64_t words[4];
} Call;

WORK(CallsWork, const Call *calls; int64_t count, done, status;)

/* Makes the calls, in order, until one returns another status than 0; `done` is then its place. */
static void call_all(CallsWork *work) {
  work->status = 0;
  for (work->done = 0; work->done < work->count; work->done++) {
    const Call *next = &work->calls[work->done];
    work->status = next->function(next->words[0], next->words[1], next->words[2], next->words[3]);
    if (work->status) return;
  }
}

/* A function of a work, in several threads where `team` is there to run it (GNU OpenMP's GOMP_parallel). */
typedef struct {
  void (*team)(void (*)(void *), void *, unsigned, unsigned);
  void (*function)(void *);
  void *work;
  int64_t threads;
  int64_t *told[3];
} Share;

/* Calls them, in order, each with its counters and `beyond` at 0; those that it lacks are 0 themselves. One that sets
   `beyond` ends them with 1: its results are to be made in another way. */
static int share(const Share *next, int64_t count) {
  for (; count; count--, next++) {
    for (int i = 0; i < 3; i++)
      if (next->told[i]) *next->told[i] = 0;
    if (next->team) next->team(next->function, next->work, (unsigned)next->threads, 0);
    else next->function(next->work);
    if (next->told[2] && *next->told[2]) return 1;
  }
  return 0;
}

static const Function functions_calls[] = {
  FUNCTION("call_loop", "call_all", call_all, CallsWork_members),
  FUNCTION("call_loop", "share", share, ""),
  {0},
};
