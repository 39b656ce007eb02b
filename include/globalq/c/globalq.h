/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GLOBALQ_C_H
#define GLOBALQ_C_H
/**
 * @file
 * @brief c: globalq for programs in C and in languages that call C: means of vectors over workers, by operators that have names.
 *
 * A function returns GLOBALQ_OK, or another status and leaves a sentence for globalq_error(). Handles are made by functions
 * named _create and ended by _destroy, which takes NULL too. A handle is used by one thread at a time, other handles by others.
 * Sizes count bytes, lengths count values. Structs that may grow begin with their size, as the caller knows it: fill it in with
 * sizeof; members that the caller does not know keep their defaults. Settings, layers, lengths, types and steps must be the same on all
 * workers; where they are not, all workers get GLOBALQ_DISAGREEMENT. A process that is forked off makes handles of its own.
 *
 * @code
 * globalq_workers* workers = NULL;
 * globalq_call* mean = NULL;
 * globalq_settings settings = {sizeof settings, "cgx:4"};
 * if (globalq_named_memory_create("job-8f3a", rank, size, 60, &workers) != GLOBALQ_OK ||
 *     globalq_call_create(workers, GLOBALQ_MEAN, &settings, NULL, 0, &mean) != GLOBALQ_OK)
 *   fail(globalq_error());
 * for (uint64_t step = 0; step < steps; ++step) {
 *   globalq_vector const v = {gradient, gradient, length, GLOBALQ_FLOAT32};
 *   if (globalq_call_run(mean, &v, 1, step) != GLOBALQ_OK) fail(globalq_error());
 * }
 * @endcode
 */

#include <stddef.h>
#include <stdint.h>

#if defined(GLOBALQ_BUILDS_C)
#define GLOBALQ_C __attribute__((visibility("default")))
#else
#define GLOBALQ_C
#endif

#ifdef __cplusplus
extern "C" {
#endif

/** Counts changes of this header after which a program must be compiled again. */
#define GLOBALQ_C_INTERFACE 1

/** What became of a call. */
typedef enum globalq_status {
  GLOBALQ_OK = 0,
  GLOBALQ_CONFIGURATION = 1, /**< what was asked for cannot work; nothing was sent */
  GLOBALQ_DISAGREEMENT = 2,  /**< workers called differently; all are told, and vectors are as they were */
  GLOBALQ_TRANSPORT = 3,     /**< a deadline passed, or a worker died or left; the workers are unusable */
  GLOBALQ_NON_FINITE = 4,    /**< NaN or infinity, where settings ask for an error */
  GLOBALQ_FRAME = 5,         /**< bytes that are none of globalq's, or damaged */
  GLOBALQ_NO_MEMORY = 6,
  GLOBALQ_OTHER = 7 /**< an error in globalq: please report it */
} globalq_status;

/** The type of a vector's values. */
typedef enum globalq_type {
  GLOBALQ_FLOAT32 = 0,
  GLOBALQ_FLOAT64 = 1,
  GLOBALQ_FLOAT16 = 2,
  GLOBALQ_BFLOAT16 = 3
} globalq_type;

/** This worker among all, and what moves bytes between them. */
typedef struct globalq_workers globalq_workers;

/** What all workers do together once a step; keeps its memory from step to step. */
typedef struct globalq_call globalq_call;

/** @name The library
 * @{ */

/** "0.1.0" */
GLOBALQ_C char const* globalq_version(void);
/** GLOBALQ_C_INTERFACE of the library, which may be another one than that of the header. */
GLOBALQ_C int globalq_interface(void);
/** The set of instructions that the library uses on this machine: "avx512". It changes no bit of a result. */
GLOBALQ_C char const* globalq_instructions(void);
/** What went wrong in the last function that did, called by this thread: operation, rank, numbers, remedy. */
GLOBALQ_C char const* globalq_error(void);

/** An operator or a compressor that has a name. Texts live as long as the program. */
typedef struct globalq_operator {
  size_t size; /**< of this struct; to be filled in */
  char const* name;
  char const* title;
  char const* source;     /**< the paper; may be empty */
  char const* bound;      /**< on the variance of one encoding, in words */
  char const* schedule;   /**< that it is meant for; of a compressor: "" */
  char const* parameters; /**< "bits=4: bits a value on the wire, sign included: 2 to 8", a line each */
} globalq_operator;

/** The operator of a number, counted from 0.
 * @returns GLOBALQ_CONFIGURATION where there are no more */
GLOBALQ_C globalq_status globalq_operator_at(size_t number, globalq_operator* found);

/** @}
 * @name Workers
 * @{ */

/** Runs workers as threads of this process: body(workers, context) on each of @p count threads; returns when all have.
 *
 * A body returns 0, or the status of what failed; then calls of the others end by an error. Handles of workers end with it, and calls
 * over them are refused afterwards.
 * @param deadline  seconds that a wait may take
 * @returns the status of the first body that failed by itself, with its last error; GLOBALQ_OTHER for a number that is no status */
GLOBALQ_C globalq_status globalq_threads_run(int count, double deadline, int (*body)(globalq_workers*, void*),
                                             void* context);

/** Joins processes of one machine through memory that they share.
 *
 * Returns when all have joined. The name is gone then; it must be new for each job (draw it at random in one process).
 * @param name  1 to 200 letters, digits, '-', '_' and '.' */
GLOBALQ_C globalq_status globalq_named_memory_create(char const* name, int rank, int size, double deadline,
                                                     globalq_workers** created);

/** How messages travel that the caller moves itself, by sockets or a library of its own.
 *
 * From one worker to another, messages arrive in the order in which they were sent. The functions may access the bytes until wait() has
 * returned for their ticket. Each function returns 0, or another number where it failed: then the workers are unusable. wait() must end by a
 * deadline of its own. */
typedef struct globalq_messages {
  size_t size; /**< of this struct; to be filled in */
  void* context;
  /** Starts to send; ticket becomes a number that names the transfer. */
  int (*send)(void* context, int peer, void const* bytes, size_t count, uint64_t* ticket);
  int (*receive)(void* context, int peer, void* bytes, size_t count, uint64_t* ticket);
  /** Returns when the transfer is done. */
  int (*wait)(void* context, uint64_t ticket);
  /** Nobody will wait for the transfer; its bytes are about to be freed. */
  void (*abandon)(void* context, uint64_t ticket);
  /** A sentence about the last failure; may be NULL. */
  char const* (*error)(void* context);
  /** Bytes of a message, about: shorter ones overlap more, and cost more calls. 0: 2 MiB. The same on all workers. */
  size_t message_bytes;
} globalq_messages;

/** Workers whose messages the caller moves. */
GLOBALQ_C globalq_status globalq_messages_create(globalq_messages const* by, int rank, int size,
                                                 globalq_workers** created);

/** -1 for NULL. */
GLOBALQ_C int globalq_rank(globalq_workers const* workers);
/** 0 for NULL. */
GLOBALQ_C int globalq_size(globalq_workers const* workers);
/** Bytes that this worker has sent. */
GLOBALQ_C uint64_t globalq_bytes_sent(globalq_workers const* workers);
/** Calls over them keep what they need; the others see this worker leave when the last call is destroyed as well. */
GLOBALQ_C void globalq_workers_destroy(globalq_workers* workers);

/** @}
 * @name Calls
 * @{ */

/** What all workers do together. */
typedef enum globalq_kind {
  GLOBALQ_MEAN = 0,           /**< every worker gets the mean of all vectors */
  GLOBALQ_REDUCE_SCATTER = 1, /**< every worker gets its shard of the mean */
  GLOBALQ_ALL_GATHER = 2      /**< every worker gets the shards of all */
} globalq_kind;

/** How a call works; zeros and NULL are defaults. */
typedef struct globalq_settings {
  size_t size;               /**< of this struct; to be filled in */
  char const* operator_name; /**< "NAME[:VALUE][,parameter=value].."; NULL: "float32" */
  char const* schedule;      /**< ring, tree, sra, allgather or hierarchical:N; NULL: that of the operator */
  uint64_t seed;             /**< of the random bits, with the step */
  uint64_t warm_up;          /**< with layers: steps below this number are in float32 */
  uint64_t first_layer;      /**< with layers: the number of the first of them in the model */
  uint64_t model_layers;     /**< with layers: how many the model has; 0: the layers are all of them */
  int fail_on_non_finite; /**< NaN and infinity are errors; else every value of the result is NaN, and reports count it */
  int measure_errors; /**< reports say what rounding changed; costs a pass */
  /** Steps at which operators that learn levels do so, from the vectors of these steps: "100,2000,every 10000" (NULL: these, of the
   * paper). A call that is first run behind one of them, in a training that is resumed, learns at once. Where a worker brings NaN or
   * infinity, or all bring zeros, the next step is learned from instead. */
  char const* learn_at;
} globalq_settings;

/** A tensor of a model. */
typedef struct globalq_layer {
  char const* name;      /**< unique */
  uint64_t const* shape; /**< outermost dimension first */
  size_t dimensions;
  globalq_type type;
  char const* operator_name; /**< NULL: that of the settings */
} globalq_layer;

/** This worker's vector and where the result goes: the same memory (in place), or memory that does not overlap. */
typedef struct globalq_vector {
  void const* input;
  void* output;
  uint64_t length; /**< of the whole vector, also where input or output is a shard: see globalq_call_run() */
  globalq_type type;
} globalq_vector;

/** Makes a call.
 *
 * Operators that clip or learn levels ("terngrad:2.5", "alq:3", "amq:3") are for GLOBALQ_MEAN, with one vector a call or with layers, each
 * of which learns levels of its own. All workers learn from the vectors of all.
 *
 * Layers may have a compressor for an operator: "top-k:0.01", "power-sgd:4". These are biased: what a worker does not send of a layer is
 * added to its next vector (error feedback), and kept under the layer's name by globalq_call_save(). They take float32.
 * @param layers   of the model that is averaged, each by an operator of its own; with GLOBALQ_MEAN only. NULL: any vectors
 * @returns GLOBALQ_CONFIGURATION where an operator is unknown, or the parts do not fit together */
GLOBALQ_C globalq_status globalq_call_create(globalq_workers* workers, globalq_kind kind,
                                             globalq_settings const* settings, globalq_layer const* layers,
                                             size_t count, globalq_call** created);

/** Does it; all workers call alike. Afterwards all hold the same bits.
 *
 * With layers: one vector for each, in their order. Without: one vector, or with GLOBALQ_MEAN and an operator that only quantizes several,
 * which use the steps step, .., step + count - 1.
 *
 * Shards: one vector. In place, input and output are the whole vector, of which the own shard is written (GLOBALQ_REDUCE_SCATTER) or
 * read (GLOBALQ_ALL_GATHER). Otherwise the output of GLOBALQ_REDUCE_SCATTER, or the input of GLOBALQ_ALL_GATHER, is the own shard by
 * itself, of as many values as globalq_call_shard() says.
 * @param step  with the seed it selects the random bits: use each once */
GLOBALQ_C globalq_status globalq_call_run(globalq_call* call, globalq_vector const* vectors, size_t count,
                                          uint64_t step);

/** The shard of a worker: values [first, first + count) of a vector. */
GLOBALQ_C globalq_status globalq_call_shard(globalq_call const* call, uint64_t length, int rank,
                                            uint64_t* first, uint64_t* count);

/** What a call with vectors of some length does and costs. */
typedef struct globalq_plan {
  size_t size;              /**< of this struct; to be filled in */
  int rounding_steps;       /**< roundings on the longest way from a value to the mean */
  uint32_t levels;          /**< above zero; 0: none */
  uint64_t bytes_sent;      /**< by the busiest worker */
  int bytes_are_most;       /**< frames differ in length: no call sends more */
  double bits_per_value;    /**< of one worker's frame, header and scales included */
  double theta;             /**< E||result - mean||^2 <= theta / n * sum ||x_i||^2; NaN: no bound */
  double iterations_factor; /**< 1 + n theta: growth of the iterations to a target */
  uint64_t workspace_bytes; /**< frames held by one worker, at most */
} globalq_plan;

/** @param length  of a vector; with layers unused
 * @returns GLOBALQ_CONFIGURATION where there is no such call */
GLOBALQ_C globalq_status globalq_call_plan(globalq_call const* call, uint64_t length, globalq_type type,
                                           globalq_plan* plan);

/** The same of a mean among any number of workers, asked before there are any.
 * @param schedule  NULL: that of the operator */
GLOBALQ_C globalq_status globalq_plan_for(char const* operator_name, char const* schedule, int workers,
                                          uint64_t length, globalq_type type, globalq_plan* plan);

/** The operator of a layer (0 where there are none), with all parameters; levels are those that it begins with. Lives as long as the call. */
GLOBALQ_C char const* globalq_call_operator(globalq_call const* call, size_t layer);

/** What calls did. */
typedef struct globalq_report {
  size_t size; /**< of this struct; to be filled in */
  /** With layers: the parts of runs that travel by themselves, which are those of each compressor and the others. */
  uint64_t calls, failed;
  uint64_t non_finite; /**< calls whose result is NaN */
  int non_finite_rank; /**< the first rank that brought NaN or infinity to the last of them; -1: the mean overflowed */
  uint64_t uncompressed; /**< calls in float32 */
  uint64_t values, bytes_sent;
  double seconds, norm_seconds, opening_seconds, encode_seconds, reduce_seconds, decode_seconds,
      transfer_seconds;
  double normalized_error; /**< ||Q(x) - x||^2 / ||x||^2 of own values; NaN where it was not measured */
  double zero_fraction;    /**< of own values, rounded; NaN likewise */
} globalq_report;

/** The sum of all calls since the last report, which begins anew. */
GLOBALQ_C globalq_status globalq_call_report(globalq_call* call, globalq_report* report);

/** Bytes that globalq_call_save() wrote. */
typedef struct globalq_bytes {
  void const* bytes;
  size_t size;
} globalq_bytes;

/** What this worker keeps from step to step: of layers with a compressor, by their names, what has not been sent. Without any: 0 bytes.
 * @param bytes  NULL, or room
 * @param size   of the room; becomes the number of bytes. Where that is more, nothing is written */
GLOBALQ_C globalq_status globalq_call_save(globalq_call const* call, void* bytes, size_t* size);

/** Takes up what calls saved; all workers do so between the same two calls.
 *
 * Layers are found by their names, in whatever calls they were. As many workers as then: each takes its own bytes. Another number: each
 * takes the bytes of all of them, of which the mean is kept.
 * @returns GLOBALQ_FRAME where bytes are damaged, or a layer is missing; GLOBALQ_CONFIGURATION where a worker's bytes are. Nothing is
 *          changed then, but where another compressor of the call has taken up its own */
GLOBALQ_C globalq_status globalq_call_load(globalq_call* call, globalq_bytes const* states, size_t count);

GLOBALQ_C void globalq_call_destroy(globalq_call* call);

/** @}
 * @name Choosing operators
 * @{ */

/** Chooses operators for layers from their gradients: as few bytes as keep the error of a reference. */
typedef struct globalq_chooser globalq_chooser;

/** What is chosen, and how; zeros and NULL are defaults. */
typedef struct globalq_chooser_settings {
  size_t size;      /**< of this struct; to be filled in */
  char const* rule; /**< "lgreco": the fewest bytes within the budget; "kmeans": CGX's rule; NULL: "lgreco" */
  char const* reference; /**< operator that layers begin with; NULL: "cgx:4" */
  double alpha; /**< the budget is alpha times the squared error of the reference in all layers; 0: 1 */
  /** Operators with blanks between, from few bits to many, with the reference. NULL: the reference with 2 to 8 bits, in buckets of 1024 to
   * 64 values, as CGX has them. */
  char const* candidates;
} globalq_chooser_settings;

/** Makes a chooser, on all workers alike.
 * @param layers  that have a choice. With an operator_name they begin with that candidate: a choice that was saved
 * @returns GLOBALQ_CONFIGURATION for candidates whose error a worker cannot measure by itself, such as "float32", "alq:3", "global-uniform" */
GLOBALQ_C globalq_status globalq_chooser_create(globalq_workers* workers,
                                                globalq_chooser_settings const* settings,
                                                globalq_layer const* layers, size_t count,
                                                globalq_chooser** created);

/** Adds this worker's gradients of the layers first, .., first + count - 1, before they are averaged; outputs are not used.
 *
 * A layer may come in any call, or in none: then it counts as zeros. Any operator sends zeros without error, so a layer of zeros on all
 * workers gets the one of fewest bytes. Gradients with NaN or infinity are left out. */
GLOBALQ_C globalq_status globalq_chooser_add(globalq_chooser* chooser, size_t first,
                                             globalq_vector const* gradients, size_t count);

/** Chooses from what all workers have added since the last time, which begins anew. All call it, and none a call meanwhile.
 *
 * Where a worker has added nothing, operators stay.
 * @param step     the same on all workers
 * @param changed  becomes 1 where a layer has another operator now, else 0 */
GLOBALQ_C globalq_status globalq_chooser_choose(globalq_chooser* chooser, uint64_t step, int* changed);

/** The operator that a layer has now, for globalq_layer. Lives as long as the chooser. */
GLOBALQ_C char const* globalq_chooser_operator(globalq_chooser const* chooser, size_t layer);

GLOBALQ_C void globalq_chooser_destroy(globalq_chooser* chooser);

/** @} */

#ifdef __cplusplus
}
#endif
#endif
