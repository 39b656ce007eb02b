/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GLOBALQ_C_H
#define GLOBALQ_C_H
/**
 * @file
 * @brief c: the C interface of globalq, also for languages that call C: averages vectors over workers with named operators.
 *
 * - Functions return GLOBALQ_OK or an error status; globalq_error() then returns the message.
 * - Functions named _create create a handle and functions named _destroy end it; _destroy accepts NULL.
 * - One thread at a time may use a handle. Several threads may use different handles; calls over the same workers then run one after the
 *   other. All workers must make them in the same order, as with MPI and NCCL: two like calls in opposite order mix their results without
 *   an error. Give each thread workers of its own: globalq_workers_duplicate().
 * - After fork(), create new handles. If the parent has created handles too, calls of the child use one thread; results do not change.
 * - Sizes count bytes, lengths count values.
 * - Structs that may grow begin with their size: set it to sizeof. Members that the caller does not know keep their defaults.
 * - Settings, layers, lengths, types and steps must be equal on all workers; otherwise all workers get GLOBALQ_DISAGREEMENT.
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

/** Version of the binary interface: after a change, programs must be recompiled. */
#define GLOBALQ_C_INTERFACE 1

/** The result of a function. */
typedef enum globalq_status {
  GLOBALQ_OK = 0,
  GLOBALQ_CONFIGURATION =
      1, /**< the arguments are invalid; in a call, the other workers get GLOBALQ_DISAGREEMENT with the reason */
  GLOBALQ_DISAGREEMENT =
      2, /**< arguments of workers differ, or one refused its own; all workers know it; vectors are unchanged */
  GLOBALQ_TRANSPORT = 3,  /**< a deadline passed, or a worker died or left; the workers are unusable */
  GLOBALQ_NON_FINITE = 4, /**< NaN or infinity, with fail_on_non_finite */
  GLOBALQ_FRAME = 5,      /**< the bytes are corrupt or not from globalq */
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

/** This worker and its connection to the others. */
typedef struct globalq_workers globalq_workers;

/** A collective call that all workers run once per step. It keeps its memory between steps. */
typedef struct globalq_call globalq_call;

/** @name The library
 * @{ */

/** "0.3.0" */
GLOBALQ_C char const* globalq_version(void);
/** GLOBALQ_C_INTERFACE of the library, which may differ from that of the header. */
GLOBALQ_C int globalq_interface(void);
/** The instruction set that the library uses on this machine, such as "avx512". Results do not depend on it. */
GLOBALQ_C char const* globalq_instructions(void);
/** Message of the last error in this thread: operation, rank, numbers, remedy. */
GLOBALQ_C char const* globalq_error(void);

/** A named operator or compressor. Texts are valid until the program ends. */
typedef struct globalq_operator {
  size_t size; /**< sizeof(globalq_operator), set by the caller */
  char const* name;
  char const* title;
  char const* source;   /**< the paper; may be empty */
  char const* bound;    /**< variance bound of one encoding, as text */
  char const* schedule; /**< default schedule; "" for a compressor */
  /** One line each: "bits=4: bits per value on the wire, including the sign (2 to 8)". */
  char const* parameters;
} globalq_operator;

/** Describes the operator with an index, from 0.
 * @returns GLOBALQ_CONFIGURATION if the index is too large */
GLOBALQ_C globalq_status globalq_operator_at(size_t number, globalq_operator* found);

/** Describes the words of which any operator consists, as in "norm=local:inf bucket=128 wire=packed:4"; a name is short for some
 * of them, and words may follow it: "cgx:4 rotate=1024".
 * @param found  one line each, as the parameters of an operator; valid until the program ends */
GLOBALQ_C globalq_status globalq_words(char const** found);

/** Writes an operator as words, without its name, which therefore mean the same in later versions.
 * @param found  valid until the next call of the function in this thread */
GLOBALQ_C globalq_status globalq_operator_words(char const* operator_name, char const** found);

/** @}
 * @name Workers
 * @{ */

/** Runs workers as threads of this process: body(workers, context) on each of @p count threads; returns when all have returned.
 *
 * A body returns 0 or an error status; after an error, calls of the other workers fail. The handle of a worker is valid until its
 * body returns; later calls over it return an error.
 * @param deadline  longest time in seconds that a call waits for another worker
 * @returns the status of the first body that failed on its own, with its last error; GLOBALQ_OTHER if a body returns an unknown status */
GLOBALQ_C globalq_status globalq_threads_run(int count, double deadline, int (*body)(globalq_workers*, void*),
                                             void* context);

/** Connects processes on one machine through shared memory; returns when all have joined.
 *
 * The name must be unique to the job: draw it at random in one process and send it to the others. It is removed when all have joined.
 * @param name  1 to 200 letters, digits, '-', '_' and '.' */
GLOBALQ_C globalq_status globalq_named_memory_create(char const* name, int rank, int size, double deadline,
                                                     globalq_workers** created);

/** Functions of a transport of the caller, for example over sockets.
 *
 * Messages from one worker to another must arrive in the order in which they were sent. The functions may access the bytes until wait()
 * has returned for their ticket. Each function returns 0, or another number on failure; the workers are unusable afterwards. wait() must
 * return within a deadline of its own. If a function ends its thread (pthread_exit, pthread_cancel), none of the functions is called again,
 * abandon() included, and the workers are unusable: let the transfers end before you free vectors and calls. */
typedef struct globalq_messages {
  size_t size; /**< sizeof(globalq_messages), set by the caller */
  void* context;
  /** Starts to send, and sets ticket to a number that identifies the transfer. */
  int (*send)(void* context, int peer, void const* bytes, size_t count, uint64_t* ticket);
  int (*receive)(void* context, int peer, void* bytes, size_t count, uint64_t* ticket);
  /** Returns when the transfer is done. */
  int (*wait)(void* context, uint64_t ticket);
  /** Cancels a transfer: wait() will not be called, and its bytes are about to be freed. */
  void (*abandon)(void* context, uint64_t ticket);
  /** Returns a message about the last failure; may be NULL. */
  char const* (*error)(void* context);
  /** Approximate message size in bytes: short messages overlap more but need more calls. 0: 2 MiB. Equal on all workers. */
  size_t message_bytes;
} globalq_messages;

/** Creates workers whose messages the caller moves. */
GLOBALQ_C globalq_status globalq_messages_create(globalq_messages const* by, int rank, int size,
                                                 globalq_workers** created);

/** Connects the same workers once more, as MPI_Comm_dup does, so that another thread has workers of its own. All workers call it.
 *
 * Duplicates in globalq_threads_run() end with the body.
 * @returns GLOBALQ_CONFIGURATION for workers of globalq_messages_create(): connect those once more yourself */
GLOBALQ_C globalq_status globalq_workers_duplicate(globalq_workers* workers, globalq_workers** created);

/** Takes part in the next call of the other workers without making it, because this worker cannot: they get GLOBALQ_DISAGREEMENT with the
 * reason instead of waiting. Calls that return an error have done so themselves.
 * @param why  the reason, of which at most 255 bytes are sent; may be NULL */
GLOBALQ_C globalq_status globalq_workers_refuse(globalq_workers* workers, char const* why);

/** Rank of this worker; -1 for NULL. */
GLOBALQ_C int globalq_rank(globalq_workers const* workers);
/** Number of workers; 0 for NULL. */
GLOBALQ_C int globalq_size(globalq_workers const* workers);
/** Bytes that this worker has sent over these workers; duplicates count their own. */
GLOBALQ_C uint64_t globalq_bytes_sent(globalq_workers const* workers);
/** Destroys the handle. The worker leaves the others when its last call is destroyed as well. */
GLOBALQ_C void globalq_workers_destroy(globalq_workers* workers);

/** @}
 * @name Calls
 * @{ */

/** Kind of a collective call. */
typedef enum globalq_kind {
  GLOBALQ_MEAN = 0,           /**< every worker gets the mean of all vectors */
  GLOBALQ_REDUCE_SCATTER = 1, /**< every worker gets its shard of the mean */
  GLOBALQ_ALL_GATHER = 2,     /**< every worker gets the shards of all workers */
  GLOBALQ_BROADCAST = 3,      /**< every worker gets the vector of one, the root */
  GLOBALQ_ALL_TO_ALL = 4      /**< of all workers' n equal parts, worker r gets part r of each */
} globalq_kind;

/** Settings of a call; zero and NULL select defaults. */
typedef struct globalq_settings {
  size_t size;               /**< sizeof(globalq_settings), set by the caller */
  char const* operator_name; /**< "NAME[:VALUE][,word=value].."; NULL: "float32" */
  char const* schedule;  /**< ring, tree, sra, allgather or hierarchical:N; NULL: default of the operator */
  uint64_t seed;         /**< selects the random bits, together with the step */
  uint64_t warm_up;      /**< with layers: steps below this number are sent as float32 */
  uint64_t first_layer;  /**< with layers: index of the first one in the model */
  uint64_t model_layers; /**< with layers: number of layers of the model; 0: these are all */
  int fail_on_non_finite; /**< if non-zero, NaN and infinity are errors; else all of the result is NaN, and reports count it */
  int measure_errors; /**< reports include the rounding error; costs one more pass over the values */
  /** Steps at which operators learn levels, from the vectors of these steps. NULL: the steps of the paper, "100,2000,every 10000". A
   * call whose first step is after one of these (training was resumed) learns in its first step. If a vector has NaN or infinity, or
   * all vectors are zero, the call learns in the next step instead. */
  char const* learn_at;
  uint64_t chunk_values; /**< values sent at a time; 0: chosen by globalq. Not for shards */
  int root;              /**< rank of the worker whose vector GLOBALQ_BROADCAST sends; 0 for other calls */
} globalq_settings;

/** A tensor of a model. */
typedef struct globalq_layer {
  char const* name;      /**< unique */
  uint64_t const* shape; /**< outermost dimension first */
  size_t dimensions;
  globalq_type type;
  char const* operator_name; /**< NULL: operator_name of the settings */
} globalq_layer;

/** The vector of this worker, and the memory of the result: the same memory (in place), or memory that does not overlap. */
typedef struct globalq_vector {
  void const* input;
  void* output;
  uint64_t length; /**< of the whole vector, even if input or output is a shard: see globalq_call_run() */
  globalq_type type;
} globalq_vector;

/** Creates a call.
 *
 * Operators that clip or learn levels ("terngrad:2.5", "alq:3", "amq:3") require GLOBALQ_MEAN, with one vector per call or with layers.
 * They learn from the vectors of all workers; each layer has its own levels.
 *
 * The operator of a layer may be a compressor: "top-k:0.01", "power-sgd:4". Compressors are biased: a worker keeps the residual of a
 * layer that it does not send and adds it to its next vector (error feedback). globalq_call_save() saves residuals by the names of
 * layers. Compressors require float32.
 * @param layers   layers of a model, each with its own operator; with GLOBALQ_MEAN only. NULL: any vectors
 * @returns GLOBALQ_CONFIGURATION if an operator is unknown or the arguments are incompatible */
GLOBALQ_C globalq_status globalq_call_create(globalq_workers* workers, globalq_kind kind,
                                             globalq_settings const* settings, globalq_layer const* layers,
                                             size_t count, globalq_call** created);

/** Runs a call. All workers run it with the same arguments; all end with the same bits.
 *
 * With layers: pass one vector per layer, in their order. Without layers: pass one vector; GLOBALQ_MEAN with an operator that neither clips
 * nor learns accepts several, and uses the steps step, .., step + count - 1.
 *
 * Shards: pass one vector. input == output means in place: both are the whole vector; GLOBALQ_REDUCE_SCATTER writes the own shard of it
 * and GLOBALQ_ALL_GATHER reads it. Otherwise the output of GLOBALQ_REDUCE_SCATTER, or the input of GLOBALQ_ALL_GATHER, is the own shard
 * alone, with the number of values that globalq_call_shard() returns. This function cannot detect a separate shard that begins at the start
 * of the vector by mistake, and treats it as in place; globalq_call_run_shard() can.
 *
 * GLOBALQ_BROADCAST and GLOBALQ_ALL_TO_ALL: pass one vector. A broadcast does not read the inputs of other workers than the root, but they
 * are not NULL. In the output of GLOBALQ_ALL_TO_ALL part p is from worker p; steps are below 2^48 / n.
 * @param step  selects the random bits, together with the seed: use each step once */
GLOBALQ_C globalq_status globalq_call_run(globalq_call* call, globalq_vector const* vectors, size_t count,
                                          uint64_t step);

/** Runs a call of shards with both lengths, so that a shard at a wrong place is an error on all workers.
 *
 * One of input and output is the whole vector. The other is the own shard, at its place in that vector or in memory that does not overlap
 * it; or the same whole vector, in place. */
GLOBALQ_C globalq_status globalq_call_run_shard(globalq_call* call, void const* input, uint64_t input_length,
                                                void* output, uint64_t output_length, globalq_type type,
                                                uint64_t step);

/** Computes the shard of a worker: values [first, first + count) of a vector. */
GLOBALQ_C globalq_status globalq_call_shard(globalq_call const* call, uint64_t length, int rank,
                                            uint64_t* first, uint64_t* count);

/** The cost and the error bound of a call. */
typedef struct globalq_plan {
  size_t size;              /**< sizeof(globalq_plan), set by the caller */
  int rounding_steps;       /**< largest number of roundings between an input value and the mean */
  uint32_t levels;          /**< number of levels above zero; 0: not quantized */
  uint64_t bytes_sent;      /**< bytes that the busiest worker sends */
  int bytes_are_most;       /**< non-zero if frames vary in length; bytes_sent is then an upper bound */
  double bits_per_value;    /**< bits per value of one worker's frame, with header and scales */
  double theta;             /**< E||result - mean||^2 <= theta / n * sum ||x_i||^2; NaN: no bound is known */
  double iterations_factor; /**< 1 + n theta: bounds the growth of the number of iterations to a target */
  uint64_t workspace_bytes; /**< largest number of bytes that one worker holds in frames */
} globalq_plan;

/** Computes the plan of a call.
 * @param length  length of the vector; not used with layers
 * @returns GLOBALQ_CONFIGURATION if such a call is refused */
GLOBALQ_C globalq_status globalq_call_plan(globalq_call const* call, uint64_t length, globalq_type type,
                                           globalq_plan* plan);

/** Computes the plan of a mean over any number of workers. No workers have to exist.
 * @param schedule  NULL: default of the operator */
GLOBALQ_C globalq_status globalq_plan_for(char const* operator_name, char const* schedule, int workers,
                                          uint64_t length, globalq_type type, globalq_plan* plan);

/** Returns the operator of a layer (0 without layers) as a text of its policies, for example
 * "local:2 bucket 8192 table:3 stochastic packed:3 auto", or the name of its compressor.
 *
 * The text contains the kind and the number of the levels, not their values, so it does not change when levels are learned. Valid as long
 * as the call. */
GLOBALQ_C char const* globalq_call_operator(globalq_call const* call, size_t layer);

/** Totals of the calls since the last report. */
typedef struct globalq_report {
  size_t size; /**< sizeof(globalq_report), set by the caller */
  /** With layers, each run counts one call per compressor and one for all other layers. */
  uint64_t calls, failed;
  uint64_t non_finite; /**< calls whose result is NaN */
  int non_finite_rank; /**< lowest rank with NaN or infinity in the last such call; -1: the mean overflowed */
  uint64_t uncompressed; /**< calls that sent float32 */
  uint64_t values, bytes_sent;
  double seconds, norm_seconds, opening_seconds, encode_seconds, reduce_seconds, decode_seconds,
      transfer_seconds;
  double normalized_error; /**< ||Q(x) - x||^2 / ||x||^2 of own values; NaN without measure_errors */
  double zero_fraction;    /**< fraction of own values rounded to zero; NaN without measure_errors */
} globalq_report;

/** Returns the totals since the last report and resets them. */
GLOBALQ_C globalq_status globalq_call_report(globalq_call* call, globalq_report* report);

/** A state that globalq_call_save() wrote. */
typedef struct globalq_bytes {
  void const* bytes;
  size_t size;
} globalq_bytes;

/** Saves the residuals of this worker: of layers with a compressor or an operator with error feedback ("cgx:2,feedback"), by name; of a call
 * without layers, of its vectors. Without residuals the state has 0 bytes.
 * @param bytes  NULL, or a buffer
 * @param size   in: size of the buffer; out: size of the state. If the state is larger than the buffer, nothing is written */
GLOBALQ_C globalq_status globalq_call_save(globalq_call const* call, void* bytes, size_t* size);

/** Restores saved residuals. All workers do so between the same two calls.
 *
 * Layers are found by name, whichever call saved them. If the number of workers is the same, each worker passes its own state. Otherwise
 * each worker passes the states of all workers that saved, and gets their mean.
 * @returns GLOBALQ_FRAME if a state is corrupt or a layer is missing; GLOBALQ_CONFIGURATION if the state of a worker is missing. On an
 *          error nothing changes, except that other compressors, or the quantized layers, of the call may already have restored
 *          their residuals. No states, or states of 0 bytes: calls without compressors forget their residuals */
GLOBALQ_C globalq_status globalq_call_load(globalq_call* call, globalq_bytes const* states, size_t count);

/** Restores the residuals of this worker as they were when it was among other workers: it stays, and some left or joined. Workers that
 * join load nothing.
 * @param state  that this worker saved, as any rank of any number of workers; of 0 bytes: nothing changes
 * @returns GLOBALQ_FRAME as globalq_call_load(); GLOBALQ_CONFIGURATION if the state belongs to all workers, as that of "power-sgd" does */
GLOBALQ_C globalq_status globalq_call_load_own(globalq_call* call, globalq_bytes const* state);

GLOBALQ_C void globalq_call_destroy(globalq_call* call);

/** @}
 * @name Single vectors
 * @{ */

/** Encodes one vector, without workers, as bytes that any machine can decode: for files, object stores and servers.
 *
 * The bytes begin with a label: operator, length, type, seed, step, worker, workers; and end with a checksum, which detects damage but not forgery.
 * Refused are operators without codes ("float32"), and those that need a call: with residuals, learning or clipping.
 * @param vector  its input; the output is not used
 * @param seed, step, worker  select the random bits. Vectors whose mean matters need different ones
 * @param workers  1, or with "rounding=correlated" the number of vectors that are averaged, with one seed and step and the workers 0 to
 *                 workers - 1: their errors partly cancel
 * @param bytes   NULL, or a buffer
 * @param size    in: size of the buffer; out: the bytes used; if bytes is NULL, the most that a vector of this length needs
 * @returns GLOBALQ_NON_FINITE for a vector with NaN or infinity; GLOBALQ_CONFIGURATION if the buffer is smaller than the most */
GLOBALQ_C globalq_status globalq_encode(char const* operator_name, globalq_vector const* vector,
                                        uint64_t seed, uint64_t step, uint32_t worker, uint32_t workers,
                                        void* bytes, size_t* size);

/** What the bytes of globalq_encode() say about the vector. */
typedef struct globalq_label {
  size_t size; /**< sizeof(globalq_label), set by the caller */
  char const*
      operator_name; /**< its words; valid until the next call of globalq_read_label() in this thread */
  uint64_t length;
  globalq_type type;
  uint64_t seed, step;
  uint32_t worker, workers;
} globalq_label;

/** Reads the label, and checks the checksum.
 * @returns GLOBALQ_FRAME if the bytes are damaged, cut off, or not those of globalq_encode() */
GLOBALQ_C globalq_status globalq_read_label(void const* bytes, size_t size, globalq_label* label);

/** Decodes bytes of globalq_encode(). A float64 vector needs a float64 output, others may be decoded into any of the other types.
 * @param operator_name  what the bytes must have been made by; NULL: what their label says
 * @param vector  its output, of the length in the label; the input is not used
 * @param add     non-zero: adds to the output
 * @returns GLOBALQ_FRAME if the bytes are damaged or of another operator, length or type, or name an operator that this version does not
 *          know; GLOBALQ_NON_FINITE if a value is beyond the range of its type, where the output contains infinity */
GLOBALQ_C globalq_status globalq_decode(char const* operator_name, void const* bytes, size_t size,
                                        globalq_vector const* vector, int add);

/** @}
 * @name Choosing operators
 * @{ */

/** Chooses operators for layers from their gradients: the fewest bytes that keep the error of a reference. */
typedef struct globalq_chooser globalq_chooser;

/** Settings of a chooser; zero and NULL select defaults. */
typedef struct globalq_chooser_settings {
  size_t size;      /**< sizeof(globalq_chooser_settings), set by the caller */
  char const* rule; /**< "lgreco": the fewest bytes within the budget; "kmeans": CGX's rule; NULL: "lgreco" */
  char const* reference; /**< initial operator of all layers; NULL: "cgx:4" */
  double alpha; /**< the budget is alpha times the squared error of the reference in all layers; 0: 1 */
  /** Operators separated by spaces, with commas inside each, from few bits to many, including the reference; or compressors of one
   * method. NULL: the reference with 2 to 8 bits in buckets of 1024 to 64 values, as in CGX; "top-k" with 21 densities from a tenth of
   * the reference to ten times it; "power-sgd" with half to twice its rank (L-GreCo). */
  char const* candidates;
} globalq_chooser_settings;

/** Creates a chooser, with the same arguments on all workers.
 * @param layers  layers whose operators are chosen. A layer with an operator_name begins with that candidate, for example a saved choice
 * @returns GLOBALQ_CONFIGURATION for candidates whose error a worker cannot measure alone, such as "float32", "alq:3", "global-uniform" */
GLOBALQ_C globalq_status globalq_chooser_create(globalq_workers* workers,
                                                globalq_chooser_settings const* settings,
                                                globalq_layer const* layers, size_t count,
                                                globalq_chooser** created);

/** Adds this worker's gradients of the layers first, .., first + count - 1, before they are averaged. Outputs are not used.
 *
 * Layers may be added in any order. A layer that was not added counts as zeros. Every operator sends zeros without error, so a layer that
 * is zero on all workers gets the operator with the fewest bytes. Gradients with NaN or infinity are ignored. */
GLOBALQ_C globalq_status globalq_chooser_add(globalq_chooser* chooser, size_t first,
                                             globalq_vector const* gradients, size_t count);

/** Chooses from the gradients that all workers have added since the last choice, and discards them. All workers call it; no worker
 * runs a call meanwhile.
 *
 * If any worker has added nothing, the operators do not change.
 * @param step     equal on all workers
 * @param changed  set to 1 if the operator of a layer changed, else to 0 */
GLOBALQ_C globalq_status globalq_chooser_choose(globalq_chooser* chooser, uint64_t step, int* changed);

/** Returns the current operator of a layer, for globalq_layer. Valid as long as the chooser. */
GLOBALQ_C char const* globalq_chooser_operator(globalq_chooser const* chooser, size_t layer);

GLOBALQ_C void globalq_chooser_destroy(globalq_chooser* chooser);

/** @}
 * @name Advice
 * @{ */

/** Input of globalq_advise(); zero and NULL select defaults. */
typedef struct globalq_advice_settings {
  size_t size; /**< sizeof(globalq_advice_settings), set by the caller */
  double
      max_error; /**< largest squared error of the mean, relative to the mean squared norm of the gradients; 0: 0.05 */
  double max_bound; /**< largest bound on that error, theta of globalq_plan; 0: any */
  char const*
      operators; /**< to compare, separated by spaces, with commas inside an operator; NULL: a default list */
  double
      bandwidth; /**< of the network to predict for, in bytes per second and worker; 0: measure the network of the workers */
  double latency; /**< with a bandwidth: seconds until a short message arrives; 0: 20e-6 */
  int count; /**< number of workers if `workers` is NULL: of that network, or of threads on this machine if bandwidth is 0 */
} globalq_advice_settings;

/** The recommendation. Texts are valid until the next call in the same thread. */
typedef struct globalq_advice {
  size_t size; /**< sizeof(globalq_advice), set by the caller */
  char const* operator_name;
  char const* schedule;
  uint64_t chunk_values;  /**< for globalq_settings; 0: use the default */
  double seconds;         /**< predicted time of a step with this operator */
  double float32_seconds; /**< predicted time of a step with float32 */
  double error;           /**< relative squared error of the mean, measured; see max_error */
  char const* text; /**< report: all operators, why the others were not chosen, lines of C++ and Python */
  char const* json; /**< the same as one JSON object */
} globalq_advice;

/** Measures machine and network, and recommends operator, schedule and chunk size for averaging all layers in one call.
 *
 * All workers call it and receive the advice of worker 0, whose arguments are used.
 * @param workers   NULL: advises for settings->count workers in this process
 * @param layers    names and shapes; NULL: one layer with the length of the gradient
 * @param gradient  one worker's values of all layers, concatenated, to measure errors on, or those of several workers one after
 *                  another; NULL: synthetic values with heavy tails and unlike scales */
GLOBALQ_C globalq_status globalq_advise(globalq_workers* workers, globalq_advice_settings const* settings,
                                        globalq_layer const* layers, size_t count,
                                        globalq_vector const* gradient, globalq_advice* advice);

/** @} */

#ifdef __cplusplus
}
#endif
#endif
