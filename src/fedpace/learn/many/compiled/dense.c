/* Local training of rows of dense layers: forward, cross entropy, backward and plain SGD in one call.

   Jobs are trained one after the other, so that none depends on who is beside it. The order of every sum
   is part of what this computes: sums run over inputs, samples or outputs in their order, one fused
   multiply-add a term, and vectors lie across the sums, never along them. So neither the compiler nor the
   width of vectors changes a bit; products and sums that could be fused in two ways are not written.
   Weights are kept as [inputs][outputs], outputs filled up with zeros to PAD. */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define PAD 16
#define IGNORED (-100)
#define INLINE static inline __attribute__((always_inline))
#define APART __attribute__((noinline))

#if defined(__AVX512F__)
#define LANES 16
#define ROWS 10
#elif defined(__AVX2__)
#define LANES 8
#define ROWS 6
#else
#define LANES 4
#define ROWS 6
#endif

typedef float vec __attribute__((vector_size(4 * LANES), may_alias));

enum { DONE = 0, NO_MEMORY = 1, NO_SUCH_CLASS = 2 };

typedef struct {
    int64_t inputs, outputs;      /* of the layer */
    int64_t weight_at, bias_at;   /* places in a vector of all parameters; no bias: -1 */
    int64_t relu;
} Layer;

typedef struct {
    int64_t jobs, layers, cut;    /* layers before `cut` are frozen after the full steps */
    const Layer *each;
    const float *inputs;          /* of all samples, a row each */
    const int64_t *targets;
    const float *const *starts;   /* of each job: all parameters that it begins with */
    float *const *deltas;         /* of each job: changes of the layers from `cut` on */
    const int64_t *steps, *full_steps; /* of each job */
    const int64_t *sizes;         /* of each batch, job after job */
    const int64_t *places;        /* of each sample of each batch */
    int64_t largest;              /* batch */
    float lr, keep;               /* keep: 1 - lr * weight decay */
} Work;

typedef struct {
    int64_t wide;                 /* outputs, filled up */
    float *weight, *bias, *first_weight, *first_bias; /* first: as the job began */
    float *out, *slope;           /* [samples][wide] */
} State;

static int64_t padded(int64_t count) { return (count + PAD - 1) / PAD * PAD; }

/* Products. rows and columns are constants wherever these are called. */

INLINE void tile(int rows, int columns, const float *const *a, int64_t count, const float *b, int64_t wide,
                 const float *bias, float *c, int64_t next) {
    vec sums[ROWS][2];
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < columns; j++) sums[i][j] = (vec){0};
    for (int64_t k = 0; k < count; k++) {
        vec one[2];
        for (int j = 0; j < columns; j++) one[j] = *(const vec *)(b + k * wide + j * LANES);
        for (int i = 0; i < rows; i++) {
            float factor = a[i][k];
            for (int j = 0; j < columns; j++) sums[i][j] += one[j] * factor;
        }
    }
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < columns; j++) {
            vec sum = sums[i][j];
            if (bias) sum = sum + *(const vec *)(bias + j * LANES);
            *(vec *)(c + i * next + j * LANES) = sum;
        }
}

INLINE void gradient_tile(int rows, int columns, const float *const *a, int64_t k, int64_t samples,
                          const float *slope, int64_t wide, float lr, float *weight) {
    vec sums[ROWS][2];
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < columns; j++) sums[i][j] = (vec){0};
    for (int64_t s = 0; s < samples; s++) {
        vec one[2];
        for (int j = 0; j < columns; j++) one[j] = *(const vec *)(slope + s * wide + j * LANES);
        const float *row = a[s] + k;
        for (int i = 0; i < rows; i++)
            for (int j = 0; j < columns; j++) sums[i][j] += one[j] * row[i];
    }
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < columns; j++) {
            vec *at = (vec *)(weight + i * wide + j * LANES);
            *at = *at - sums[i][j] * lr;
        }
}

#define FEWER_ROWS(call)                                                                               \
    case 1: call(1); break; case 2: call(2); break; case 3: call(3); break;                            \
    case 4: call(4); break; case 5: call(5); break;
#if ROWS == 10
#define EACH_ROWS(call) FEWER_ROWS(call) case 6: call(6); break; case 7: call(7); break;               \
    case 8: call(8); break; case 9: call(9); break; default: call(10);
#else
#define EACH_ROWS(call) FEWER_ROWS(call) default: call(6);
#endif

/* c[s] = sum over k of a[s][k] b[k], and bias; all rows of b and c are `wide`. */
APART static void multiply(const float *const *a, int64_t samples, int64_t count, const float *b, int64_t wide,
                           const float *bias, float *c) {
    for (int64_t j = 0; j < wide;) {
        int pair = wide - j >= 2 * LANES;
        for (int64_t s = 0; s < samples; s += ROWS) {
            int rows = (int)(samples - s < ROWS ? samples - s : ROWS);
            const float *bias_at = bias ? bias + j : NULL;
#define TWO(n) tile(n, 2, a + s, count, b + j, wide, bias_at, c + s * wide + j, wide)
#define ONE(n) tile(n, 1, a + s, count, b + j, wide, bias_at, c + s * wide + j, wide)
            if (pair) switch (rows) { EACH_ROWS(TWO) }
            else switch (rows) { EACH_ROWS(ONE) }
#undef TWO
#undef ONE
        }
        j += pair ? 2 * LANES : LANES;
    }
}

/* weight[k] -= lr * sum over samples of a[s][k] slope[s]. */
APART static void descend(const float *const *a, int64_t samples, int64_t count, const float *slope,
                          int64_t wide, float lr, float *weight) {
    for (int64_t j = 0; j < wide;) {
        int pair = wide - j >= 2 * LANES;
        for (int64_t k = 0; k < count; k += ROWS) {
            int rows = (int)(count - k < ROWS ? count - k : ROWS);
            float *at = weight + k * wide + j;
#define TWO(n) gradient_tile(n, 2, a, k, samples, slope + j, wide, lr, at)
#define ONE(n) gradient_tile(n, 1, a, k, samples, slope + j, wide, lr, at)
            if (pair) switch (rows) { EACH_ROWS(TWO) }
            else switch (rows) { EACH_ROWS(ONE) }
#undef TWO
#undef ONE
        }
        j += pair ? 2 * LANES : LANES;
    }
}

APART static void descend_bias(int64_t samples, const float *slope, int64_t wide, float lr, float *bias) {
    for (int64_t j = 0; j < wide; j++) {
        float sum = 0;
        for (int64_t s = 0; s < samples; s++) sum = sum + slope[s * wide + j];
        bias[j] = fmaf(-lr, sum, bias[j]);
    }
}

APART static void scale(float *numbers, int64_t count, float keep) {
    for (int64_t i = 0; i < count; i++) numbers[i] = numbers[i] * keep;
}

/* Loss */

/* e^x for x <= 0: x = n log 2 + r, by the series of e^r to r^7 / 5040; below -87 it is 0. */
INLINE float exponential(float x) {
    if (x < -87.0f) return 0.0f;
    float n = rintf(x * 1.44269504f);
    float r = fmaf(n, -0.693359375f, x); /* log 2 in two parts, the first of few bits */
    r = fmaf(n, 2.12194440e-4f, r);
    float sum = 1.0f / 5040;
    sum = fmaf(sum, r, 1.0f / 720);
    sum = fmaf(sum, r, 1.0f / 120);
    sum = fmaf(sum, r, 1.0f / 24);
    sum = fmaf(sum, r, 1.0f / 6);
    sum = fmaf(sum, r, 0.5f);
    sum = fmaf(sum, r, 1.0f);
    sum = fmaf(sum, r, 1.0f);
    union { uint32_t bits; float number; } power;
    power.bits = n >= -126.0f ? (uint32_t)((int32_t)n + 127) << 23 : 0x3f800000u; /* NaN stays in sum */
    return sum * power.number;
}

/* Turn outputs into the gradient of the mean cross entropy: (softmax - 1 at the target) / samples. */
APART static int loss_slope(const Work *work, const int64_t *places, int64_t samples, int64_t classes,
                            int64_t wide, float *out) {
    int64_t real = 0;
    for (int64_t s = 0; s < samples; s++) real += work->targets[places[s]] != IGNORED;
    for (int64_t s = 0; s < samples; s++) {
        float *row = out + s * wide;
        int64_t target = work->targets[places[s]];
        if (target != IGNORED && (target < 0 || target >= classes)) return NO_SUCH_CLASS;
        float most = row[0], sum = 0;
        for (int64_t j = 1; j < classes; j++) most = row[j] > most ? row[j] : most;
        for (int64_t j = 0; j < classes; j++) {
            row[j] = exponential(row[j] - most);
            sum = sum + row[j];
        }
        float share = real ? (target == IGNORED ? 0.0f : 1.0f / (float)real) : NAN;
        for (int64_t j = 0; j < classes; j++) {
            float chance = row[j] / sum;
            float wrong = j == target ? chance - 1.0f : chance;
            row[j] = wrong * share;
        }
    }
    return DONE;
}

/* One step of the layers from `first` on. rows, turned: memory for pointers, and for a layer's weights. */
static int step(const Work *work, State *states, int64_t first, const int64_t *places, int64_t samples,
                const float **rows, const float **above, float *turned) {
    int64_t layers = work->layers, last = layers - 1;
    for (int64_t s = 0; s < samples; s++) rows[s] = work->inputs + places[s] * work->each[0].inputs;
    for (int64_t l = 0; l < layers; l++) {
        State *state = states + l;
        const float **in = rows;
        if (l) {
            in = above;
            for (int64_t s = 0; s < samples; s++) in[s] = states[l - 1].out + s * states[l - 1].wide;
        }
        multiply(in, samples, work->each[l].inputs, state->weight, state->wide, state->bias, state->out);
        if (work->each[l].relu)
            for (int64_t i = 0; i < samples * state->wide; i++)
                state->out[i] = state->out[i] < 0 ? 0.0f : state->out[i];
    }
    int wrong = loss_slope(work, places, samples, work->each[last].outputs, states[last].wide, states[last].out);
    if (wrong) return wrong;
    float *slope = states[last].out;
    for (int64_t l = last; l >= first; l--) {
        State *state = states + l, *below = state - 1;
        int64_t count = work->each[l].inputs, outputs = work->each[l].outputs, wide = state->wide;
        const float **in = rows;
        if (l) {
            in = above;
            if (l > first) {
                for (int64_t j = 0; j < outputs; j++)
                    for (int64_t k = 0; k < below->wide; k++)
                        turned[j * below->wide + k] = k < count ? state->weight[k * wide + j] : 0.0f;
                for (int64_t s = 0; s < samples; s++) in[s] = slope + s * wide;
                multiply(in, samples, outputs, turned, below->wide, NULL, below->slope);
                if (work->each[l - 1].relu)
                    for (int64_t i = 0; i < samples * below->wide; i++)
                        below->slope[i] = below->out[i] > 0 ? below->slope[i] : below->slope[i] * 0.0f;
            }
            for (int64_t s = 0; s < samples; s++) in[s] = below->out + s * below->wide;
        }
        if (work->keep != 1.0f) {
            scale(state->weight, count * wide, work->keep);
            scale(state->bias, wide, work->keep);
        }
        descend(in, samples, count, slope, wide, work->lr, state->weight);
        if (work->each[l].bias_at >= 0) descend_bias(samples, slope, wide, work->lr, state->bias);
        if (l) slope = below->slope;
    }
    return DONE;
}

/* Jobs */

static void load(const Work *work, State *states, const float *start) {
    for (int64_t l = 0; l < work->layers; l++) {
        const Layer *layer = work->each + l;
        int64_t wide = states[l].wide, block = 16;
        memset(states[l].first_bias, 0, 4 * wide);
        memset(states[l].first_weight, 0, 4 * wide * layer->inputs);
        if (layer->bias_at >= 0) memcpy(states[l].first_bias, start + layer->bias_at, 4 * layer->outputs);
        for (int64_t k = 0; k < layer->inputs; k += block)
            for (int64_t j = 0; j < layer->outputs; j++)
                for (int64_t i = k; i < k + block && i < layer->inputs; i++)
                    states[l].first_weight[i * wide + j] = start[layer->weight_at + j * layer->inputs + i];
    }
}

static void begin(const Work *work, State *states, int64_t until) {
    for (int64_t l = 0; l < until; l++) {
        memcpy(states[l].weight, states[l].first_weight, 4 * states[l].wide * work->each[l].inputs);
        memcpy(states[l].bias, states[l].first_bias, 4 * states[l].wide);
    }
}

static void store(const Work *work, const State *states, float *delta) {
    int64_t before = work->each[work->cut].weight_at, block = 16;
    for (int64_t l = work->cut; l < work->layers; l++) {
        const Layer *layer = work->each + l;
        const State *state = states + l;
        if (layer->bias_at >= 0)
            for (int64_t j = 0; j < layer->outputs; j++)
                delta[layer->bias_at - before + j] = state->bias[j] - state->first_bias[j];
        for (int64_t k = 0; k < layer->inputs; k += block)
            for (int64_t j = 0; j < layer->outputs; j++)
                for (int64_t i = k; i < k + block && i < layer->inputs; i++) {
                    int64_t at = i * state->wide + j;
                    delta[layer->weight_at - before + j * layer->inputs + i] =
                        state->weight[at] - state->first_weight[at];
                }
    }
}

static int train(const Work *work, State *states, const float **rows, float *turned) {
    const int64_t *places = work->places, *sizes = work->sizes;
    const float *loaded = NULL;
    for (int64_t job = 0; job < work->jobs; job++) {
        if (work->starts[job] != loaded) load(work, states, loaded = work->starts[job]);
        begin(work, states, work->layers);
        for (int64_t number = 0; number < work->steps[job]; number++) {
            int full = number < work->full_steps[job];
            if (number && number == work->full_steps[job]) begin(work, states, work->cut);
            int wrong = step(work, states, full ? 0 : work->cut, places, *sizes, rows, rows + work->largest, turned);
            if (wrong) return wrong;
            places += *sizes++;
        }
        store(work, states, work->deltas[job]);
    }
    return DONE;
}

int fedpace_train_dense(const Work *work) {
    int64_t widest = 0, total = 0;
    State *states = calloc(work->layers, sizeof(State));
    const float **rows = malloc(2 * work->largest * sizeof(float *));
    float *memory = NULL;
    int result = NO_MEMORY;
    if (!states || !rows) goto end;
    for (int turn = 0; turn < 2; turn++) { /* first count, then cut the memory up */
        float *free_at = memory;
#define TAKE(into, count) do { int64_t some = padded(count); total += some; \
            if (turn) { into = free_at; free_at += some; } } while (0)
        for (int64_t l = 0; l < work->layers; l++) {
            int64_t wide = states[l].wide = padded(work->each[l].outputs);
            int64_t turned_size = l ? work->each[l].outputs * padded(work->each[l - 1].outputs) : 0;
            widest = turned_size > widest ? turned_size : widest;
            TAKE(states[l].weight, wide * work->each[l].inputs);
            TAKE(states[l].first_weight, wide * work->each[l].inputs);
            TAKE(states[l].bias, wide);
            TAKE(states[l].first_bias, wide);
            TAKE(states[l].out, wide * work->largest);
            TAKE(states[l].slope, wide * work->largest);
        }
        if (!turn && posix_memalign((void **)&memory, 64, 4 * (total + padded(widest) + PAD))) goto end;
        if (turn) {
            memset(memory, 0, 4 * (total / 2 + padded(widest)));
            result = train(work, states, rows, free_at);
        }
    }
end:
    free(memory);
    free(rows);
    free(states);
    return result;
}
