// The operations that take most of the time of a decoding step, for a CPU with AVX-512 and VNNI. `cpu.py` compiles and calls them.
//
//   linear      rows times a matrix in 8 bits; for finite numbers, bit for bit what `Int8Linear` computes with PyTorch
//   attend      attention of single queries, which skips hidden keys
//   layer_norm  two passes over each vector, which stays in the cache of the CPU
//   append      stores new keys and values
//   keep        moves the keys and values that are still needed to the front, or to another row
//   likeliest   log-softmax and its k largest values, without storing the others
//   block       a whole block from these, which leaves out what it takes to call them one by one
//
// Each runs on the thread that calls it, except for large products: engines run side by side (`cutaway.decoding.engine.threads`).

#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <thread>
#include <type_traits>
#include <vector>

#define INLINE __attribute__((always_inline))

namespace {

constexpr int LANES = 16;               // floats in a register
constexpr int PANEL = 64;               // outputs whose weights are stored together: 4 registers
constexpr int TILE = 6;                 // rows at a time: 6 · 4 sums, 4 of weights, 1 of activations: 29 of 32 registers
constexpr long SHARE = 1 << 23;         // multiplications that are worth a thread of their own
constexpr float SMALLEST = 0x1p-100f;   // so that a row of zeros is not divided by 0
constexpr float INFINITE = std::numeric_limits<float>::infinity();

inline __mmask16 first(long n) { return n >= LANES ? 0xffff : (1u << std::max(n, 0L)) - 1; }

// sum += four products of bytes in each lane. As an instruction, because with the intrinsic GCC 12 keeps sums in memory.
inline void add_products(__m512i& sum, __m512i above_zero, __m512i weights) {
    asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(above_zero), "v"(weights));
}

// Rounds a row to integers in −127 … 127 and stores them as bytes, integer + 128. Returns the value of one step.
float to_bytes(const float* x, long n, uint8_t* bytes) {
    __m512 largest = _mm512_setzero_ps();
    __mmask16 odd = 0;
    for (long i = 0; i < n; i += LANES) {
        const __m512 some = _mm512_maskz_loadu_ps(first(n - i), x + i);
        largest = _mm512_max_ps(largest, _mm512_abs_ps(some));
        odd |= _mm512_cmp_ps_mask(some, some, _CMP_UNORD_Q);
    }
    const float size = std::fma(_mm512_reduce_max_ps(largest), 1.0f / 127, SMALLEST);
    const __m512 per_size = _mm512_set1_ps(1 / size);
    for (long i = 0; i < n; i += LANES) {
        const __mmask16 there = first(n - i);
        const __m512i whole = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_maskz_loadu_ps(there, x + i), per_size));
        const __m128i byte = _mm_xor_si128(_mm512_cvtepi32_epi8(whole), _mm_set1_epi8(-128));
        _mm_mask_storeu_epi8(bytes + i, there, byte);
    }
    return odd ? NAN : size;  // because bytes cannot be NaN
}

struct Matrix {
    const int8_t* panels;  // [panel][quad of inputs][output of the panel][4]
    const float* scale;    // of each output
    const int32_t* above;  // 128 times the sum of each output's weights, because bytes are integers + 128
    const float* bias;     // or null
    long in, out;
};

// f(0), …, f(N − 1), unrolled: in a loop, GCC keeps indexed values in memory instead of registers.
template <int N, class F>
inline INLINE void each(F f) {
    if constexpr (N > 0) {
        each<N - 1>(f);
        f(std::integral_constant<int, N - 1>());
    }
}

// ROWS rows times one panel.
template <int ROWS>
void tile(const uint8_t* bytes, const float* sizes, const Matrix& matrix, long panel, float* y) {
    __m512i sums[ROWS][4];
    each<ROWS * 4>([&](auto i) INLINE { sums[i / 4][i % 4] = _mm512_setzero_si512(); });
    const int8_t* weights = matrix.panels + panel * matrix.in * PANEL;
    for (long i = 0; i < matrix.in; i += 4, weights += 4 * PANEL) {
        const __m512i w[] = {_mm512_load_si512(weights), _mm512_load_si512(weights + 64),
                             _mm512_load_si512(weights + 128), _mm512_load_si512(weights + 192)};
        each<ROWS>([&](auto row) INLINE {
            const __m512i four = _mm512_set1_epi32(*reinterpret_cast<const int32_t*>(bytes + row * matrix.in + i));
            each<4>([&](auto part) INLINE { add_products(sums[row][part], four, w[part]); });
        });
    }
    each<4>([&](auto part) INLINE {
        const long out = panel * PANEL + part * LANES;
        const __mmask16 there = first(matrix.out - out);
        const __m512i above = _mm512_maskz_loadu_epi32(there, matrix.above + out);
        const __m512 scale = _mm512_maskz_loadu_ps(there, matrix.scale + out);
        const __m512 bias = matrix.bias ? _mm512_maskz_loadu_ps(there, matrix.bias + out) : _mm512_setzero_ps();
        each<ROWS>([&](auto row) INLINE {
            const __m512 found = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_sub_epi32(sums[row][part], above)), scale);
            const __m512 size = _mm512_set1_ps(sizes[row]);
            const __m512 sum = matrix.bias ? _mm512_fmadd_ps(found, size, bias) : _mm512_mul_ps(found, size);
            _mm512_mask_storeu_ps(y + row * matrix.out + out, there, sum);
        });
    });
}

using Tile = void (*)(const uint8_t*, const float*, const Matrix&, long, float*);
constexpr Tile TILES[] = {nullptr, tile<1>, tile<2>, tile<3>, tile<4>, tile<5>, tile<6>};

// e^x for x ≤ 0, with an error of about 2 units in the last place: 2^n · p(f), n an integer and f in −½ … ½. Below 2^−126 it is 0.
inline __m512 exp_of(__m512 x) {
    const __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504f)), 0);
    __m512 f = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693359375f), x);
    f = _mm512_fnmadd_ps(n, _mm512_set1_ps(-2.12194440e-4f), f);
    __m512 p = _mm512_set1_ps(1.0f / 5040);
    for (float c : {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f}) p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(c));
    const __mmask16 seen = _mm512_cmp_ps_mask(x, _mm512_set1_ps(-87.0f), _CMP_NLT_UQ);  // NaN stays NaN
    return _mm512_maskz_scalef_ps(seen, p, n);
}

inline float dot(const float* a, const float* b, long n) {
    __m512 sum = _mm512_mul_ps(_mm512_loadu_ps(a), _mm512_loadu_ps(b));
    for (long i = LANES; i < n; i += LANES) sum = _mm512_fmadd_ps(_mm512_loadu_ps(a + i), _mm512_loadu_ps(b + i), sum);
    return _mm512_reduce_add_ps(sum);
}

// Prefetches vectors that are needed soon: the CPU cannot predict where those of the next head are.
inline void fetch(const float* vectors, long stride, const int32_t* seen, long n, long d) {
    for (long i = 0; i < n; i++)
        for (long part = 0; part < d; part += LANES) _mm_prefetch(reinterpret_cast<const char*>(vectors + seen[i] * stride + part), _MM_HINT_T1);
}

// Replaces scores by e^(score − largest) and returns their sum. Divided by it, they are the pattern.
float soften(float* scores, long n) {
    __m512 largest = _mm512_set1_ps(-INFINITE);
    for (long i = n; i < (n + LANES - 1) / LANES * LANES; i++) scores[i] = -INFINITE;
    for (long i = 0; i < n; i += LANES) largest = _mm512_max_ps(_mm512_loadu_ps(scores + i), largest);
    const __m512 most = _mm512_set1_ps(_mm512_reduce_max_ps(largest));
    __m512 sum = _mm512_setzero_ps();
    for (long i = 0; i < n; i += LANES) {
        const __m512 p = exp_of(_mm512_sub_ps(_mm512_loadu_ps(scores + i), most));
        _mm512_storeu_ps(scores + i, p);
        sum = _mm512_add_ps(sum, p);
    }
    return _mm512_reduce_add_ps(sum);
}

template <int PARTS>  // d_head / 16
void mix(const float* pattern, float sum, const float* values, long stride, const int32_t* seen, long n, float* out) {
    __m512 mixed[PARTS];
    each<PARTS>([&](auto part) INLINE { mixed[part] = _mm512_setzero_ps(); });
    for (long i = 0; i < n; i++) {
        const __m512 p = _mm512_set1_ps(pattern[i]);
        const float* value = values + seen[i] * stride;
        each<PARTS>([&](auto part) INLINE { mixed[part] = _mm512_fmadd_ps(p, _mm512_loadu_ps(value + part * LANES), mixed[part]); });
    }
    const __m512 share = _mm512_set1_ps(sum == 0 ? 0 : 1 / sum);  // zeros for a query that may look nowhere
    each<PARTS>([&](auto part) INLINE { _mm512_storeu_ps(out + part * LANES, _mm512_mul_ps(mixed[part], share)); });
}

using Mix = void (*)(const float*, float, const float*, long, const int32_t*, long, float*);
constexpr Mix MIXES[] = {nullptr, mix<1>, mix<2>, nullptr, mix<4>, nullptr, nullptr, nullptr, mix<8>};

}  // namespace

extern "C" {

void linear(const float* x, long rows, const int8_t* panels, const float* scale, const int32_t* above, const float* bias,
            long in, long out, float* y, long threads) {
    static thread_local std::vector<uint8_t> bytes;
    static thread_local std::vector<float> sizes;
    bytes.resize(rows * in);
    sizes.resize(rows);
    for (long row = 0; row < rows; row++) sizes[row] = to_bytes(x + row * in, in, bytes.data() + row * in);
    const Matrix matrix{panels, scale, above, bias, in, out};
    const long tiles = (rows + TILE - 1) / TILE, n_panels = (out + PANEL - 1) / PANEL;
    const uint8_t* given = bytes.data();  // of this thread; the vectors are thread_local
    const float* worth = sizes.data();
    const auto multiply = [&](long begin, long end) {
        for (long panel = begin; panel < end; panel++)  // its weights stay in the cache for all rows
            for (long t = 0, row = 0; t < tiles; t++) {
                const long next = rows * (t + 1) / tiles;  // tiles of nearly equal height
                TILES[next - row](given + row * in, worth + row, matrix, panel, y + row * out);
                row = next;
            }
    };
    std::vector<std::thread> others;
    for (long i = 1; i < threads; i++) others.emplace_back(multiply, n_panels * i / threads, n_panels * (i + 1) / threads);
    multiply(0, n_panels / threads);
    for (std::thread& other : others) other.join();
}

// softmax(q·k · scale + table) v for n queries [query][head][d]. Query i attends to row rows[i] of keys and values, where
// line places[i] of the table is not −∞. Without `rows`, query i is number i % each of row i / each.
void attend(const float* queries, long query_stride, const float* keys, const float* values, long row_stride,
            long head_stride, long slot_stride, const float* table, long table_row, long table_line, const int64_t* rows,
            const int64_t* places, long n, long each, long heads, long slots, long d, float scale, float* out){
    static thread_local std::vector<int32_t> seen;
    static thread_local std::vector<float> added, pattern;
    seen.resize(slots);
    added.resize(slots);
    pattern.resize(slots + LANES);
    const Mix mix = MIXES[d / LANES];
    for (long i = 0; i < n; i++) {
        const long row = rows ? rows[i] : i / each, place = rows ? places[i] : i % each;
        const float* line = table ? table + row * table_row + place * table_line : nullptr;
        long few = 0;
        for (long slot = 0; slot < slots; slot++) {
            const float more = line ? line[slot] : 0.0f;
            seen[few] = slot;
            added[few] = more;
            few += more != -INFINITE;
        }
        for (long head = 0; head < heads; head++) {
            const float* query = queries + i * query_stride + head * d;
            const long from = row * row_stride + head * head_stride;
            if (head + 1 < heads) {
                fetch(keys + from + head_stride, slot_stride, seen.data(), few, d);
                fetch(values + from + head_stride, slot_stride, seen.data(), few, d);
            }
            for (long k = 0; k < few; k++) pattern[k] = std::fma(dot(query, keys + from + seen[k] * slot_stride, d), scale, added[k]);
            const float sum = soften(pattern.data(), few);
            mix(pattern.data(), sum, values + from, slot_stride, seen.data(), few, out + (i * heads + head) * d);
        }
    }
}

// Stores the vectors [token][head][d] of n new tokens: token i in slot slots[i] of row rows[i], or without `rows` of row i / each.
void append(const float* tokens, long token_stride, float* store, long row_stride, long head_stride, long slot_stride,
            const int64_t* rows, const int64_t* slots, long n, long each, long heads, long d) {
    for (long i = 0; i < n; i++) {
        float* to = store + (rows ? rows[i] : i / each) * row_stride + slots[i] * slot_stride;
        for (long head = 0; head < heads; head++)
            std::memcpy(to + head * head_stride, tokens + i * token_stride + head * d, d * sizeof(float));
    }
}

// Copies within a store: slot j of row to[i] becomes slot slots[i][j] ≥ j of row from[i], or without `slots` its slot j.
void keep(float* store, long row_stride, long head_stride, long slot_stride, const int64_t* from, const int64_t* to,
          const int64_t* slots, long slots_stride, const int64_t* counts, long n, long heads, long d) {
    for (long i = 0; i < n; i++)
        for (long head = 0; head < heads; head++) {
            const float* old = store + from[i] * row_stride + head * head_stride;
            float* now = store + to[i] * row_stride + head * head_stride;
            for (long j = 0; j < counts[i]; j++) {
                const long slot = slots ? slots[i * slots_stride + j] : j;
                if (now != old || slot != j) std::memcpy(now + j * slot_stride, old + slot * slot_stride, d * sizeof(float));
            }
        }
}

// (x − mean) / √(variance + ε) · weight + bias, row by row; d is a multiple of 16.
void layer_norm(const float* x, long rows, long d, const float* weight, const float* bias, float eps, float* y) {
    for (long row = 0; row < rows; row++, x += d, y += d) {
        __m512 sum = _mm512_setzero_ps(), square = _mm512_setzero_ps();
        for (long i = 0; i < d; i += LANES) sum = _mm512_add_ps(sum, _mm512_loadu_ps(x + i));
        const __m512 mean = _mm512_set1_ps(_mm512_reduce_add_ps(sum) / d);
        for (long i = 0; i < d; i += LANES) {
            const __m512 centred = _mm512_sub_ps(_mm512_loadu_ps(x + i), mean);
            square = _mm512_fmadd_ps(centred, centred, square);
        }
        const __m512 scale = _mm512_set1_ps(1 / std::sqrt(_mm512_reduce_add_ps(square) / d + eps));
        for (long i = 0; i < d; i += LANES) {
            const __m512 normal = _mm512_mul_ps(_mm512_sub_ps(_mm512_loadu_ps(x + i), mean), scale);
            _mm512_storeu_ps(y + i, _mm512_fmadd_ps(normal, _mm512_loadu_ps(weight + i), _mm512_loadu_ps(bias + i)));
        }
    }
}

// The k largest log p of each row of logits, in descending order, and their ids; of equal ones, the first.
void likeliest(const float* logits, long rows, long vocab, long k, float* log_p, int64_t* ids) {
    static thread_local std::vector<float> peaks, best;
    static thread_local std::vector<int32_t> found;
    const long blocks = (vocab + PANEL - 1) / PANEL;
    peaks.resize(blocks);
    found.resize(vocab + LANES);
    const __m512 none = _mm512_set1_ps(-INFINITE);
    for (long row = 0; row < rows; row++, logits += vocab, log_p += k, ids += k) {
        for (long block = 0; block < blocks; block++) {
            __m512 peak = none;
            for (long i = block * PANEL; i < std::min(vocab, (block + 1) * PANEL); i += LANES)
                peak = _mm512_max_ps(_mm512_mask_loadu_ps(none, first(vocab - i), logits + i), peak);
            peaks[block] = _mm512_reduce_max_ps(peak);
        }
        // k blocks have a peak of at least the k-th largest one, so smaller numbers are not among the k largest
        best.assign(peaks.begin(), peaks.end());
        std::nth_element(best.begin(), best.begin() + std::min(k, blocks) - 1, best.end(), std::greater<float>());
        const __m512 bar = _mm512_set1_ps(blocks < k ? -INFINITE : best[k - 1]);
        const __m512 most = _mm512_set1_ps(*std::max_element(peaks.begin(), peaks.end()));
        __m512 sum = _mm512_setzero_ps();
        long n = 0;
        for (long i = 0; i < vocab; i += LANES) {
            const __mmask16 there = first(vocab - i);
            const __m512 x = _mm512_mask_loadu_ps(none, there, logits + i);
            sum = _mm512_add_ps(sum, exp_of(_mm512_sub_ps(x, most)));
            const __mmask16 large = _mm512_cmp_ps_mask(x, bar, _CMP_GE_OQ) & there;
            if (large) {
                const __m512i at = _mm512_add_epi32(_mm512_set1_epi32(i), _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
                _mm512_mask_compressstoreu_epi32(found.data() + n, large, at);
                n += __builtin_popcount(large);
            }
        }
        const float log_sum = std::log(_mm512_reduce_add_ps(sum));  // NaN if a logit is
        const auto before = [&](int32_t a, int32_t b) { return logits[a] != logits[b] ? logits[a] > logits[b] : a < b; };
        std::partial_sort(found.begin(), found.begin() + std::min(k, n), found.begin() + n, before);
        for (long i = 0; i < k; i++) {
            ids[i] = i < n ? found[i] : 0;
            log_p[i] = i < n ? logits[found[i]] - _mm512_cvtss_f32(most) - log_sum : NAN;
        }
    }
}

struct Product {  // a linear map in 8 bits
    const int8_t* panels;
    const float* scale;
    const int32_t* above;
    const float* bias;
    long in, out;
};

struct Norm {
    const float *weight, *bias;
    float eps;
};

struct Attending {  // self-attention or cross-attention
    Norm norm;
    Product in, out;  // `in` has queries, keys and values, or queries alone
    long heads, d_head;
    float scale;
};

struct Seen {  // keys and values [row][head][slot][d], and the table of what may be seen
    float *keys, *values;
    long row, head, slot, slots;
    const float* table;
    long table_row, table_line;
};

struct Block {
    Attending self, cross;  // without cross-attention its `heads` are 0
    Norm norm;              // before the feed-forward, or after it
    Product up, down;
    long pre;  // pre-norm; otherwise each norm reads the sum
};

// A block with ReLU for n tokens, `each` of them in a row: x becomes the residual stream after it. New keys and values go to
// slots[i] of `own`; without `slots` the tokens attend to each other. `rows` and `places` are those of packed tokens.
void block(const Block* b, float* x, long n, long each, const Seen* own, const int64_t* slots, const Seen* memory,
           const int64_t* rows, const int64_t* places, long most_threads) {
    static thread_local std::vector<float> read, inside, mixed, written;
    const long d = b->self.out.out;
    const auto room = [](std::vector<float>& some, long size) { if (long(some.size()) < size) some.resize(size); return some.data(); };
    const auto product = [&](const Product& m, const float* from, float* to) {
        const long threads = std::max(1L, std::min(most_threads, n * m.out * m.in / SHARE));
        linear(from, n, m.panels, m.scale, m.above, m.bias, m.in, m.out, to, threads);
    };
    const auto normed = [&](const Norm& norm) -> const float* {  // what a sub-layer reads
        if (!b->pre) return x;
        layer_norm(x, n, d, norm.weight, norm.bias, norm.eps, room(read, n * d));
        return read.data();
    };
    const auto add = [&](const Norm& norm) {  // what a sub-layer wrote
        const float* more = written.data();
        for (long i = 0; i < n * d; i++) x[i] = x[i] + more[i];
        if (!b->pre) layer_norm(x, n, d, norm.weight, norm.bias, norm.eps, x);
    };
    room(written, n * d);
    for (const Attending* part : {&b->self, &b->cross}) {
        if (part->heads == 0) continue;
        const long width = part->heads * part->d_head, stride = part->in.out;
        float* heads = room(inside, n * stride);
        product(part->in, normed(part->norm), heads);
        Seen seen = part == &b->cross ? *memory : *own;
        if (part == &b->self && slots) {
            append(heads + width, stride, seen.keys, seen.row, seen.head, seen.slot, rows, slots, n, each, part->heads, part->d_head);
            append(heads + 2 * width, stride, seen.values, seen.row, seen.head, seen.slot, rows, slots, n, each, part->heads, part->d_head);
        } else if (part == &b->self) {
            seen.keys = heads + width, seen.values = heads + 2 * width;
            seen.row = each * stride, seen.head = part->d_head, seen.slot = stride, seen.slots = each;
        }
        attend(heads, stride, seen.keys, seen.values, seen.row, seen.head, seen.slot, seen.table, seen.table_row, seen.table_line,
               rows, places, n, each, part->heads, seen.slots, part->d_head, part->scale, room(mixed, n * width));
        product(part->out, mixed.data(), written.data());
        add(part->norm);
    }
    float* features = room(inside, n * b->up.out);
    product(b->up, normed(b->norm), features);
    for (long i = 0; i < n * b->up.out; i++) features[i] = features[i] < 0 ? 0 : features[i];  // NaN stays NaN
    product(b->down, features, written.data());
    add(b->norm);
}

}  // extern "C"
