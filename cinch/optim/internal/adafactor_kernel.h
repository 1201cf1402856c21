#pragma once
// Adafactor (1804.04235) on one parameter, in sweeps over its gradient and without a temporary of its size. Sums are
// taken in pieces that do not depend on the number of threads, so neither do results.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

#include <ATen/Parallel.h>
#include <c10/util/ArrayRef.h>

namespace cinch::optim::internal {

inline constexpr std::int64_t kPiece = 16384;    ///< Elements that one thread sums at least.
inline constexpr std::int64_t kMostPieces = 16;  ///< Of one matrix.

/// A parameter as matrices: its last two dimensions, and how many of them.
struct MatrixShape {
  std::int64_t count = 1, rows = 0, columns = 0;
  std::int64_t rows_a_piece() const {
    return std::max((rows + kMostPieces - 1) / kMostPieces,
                    (kPiece + columns - 1) / std::max<std::int64_t>(columns, 1));
  }
  std::int64_t pieces() const { return (rows + rows_a_piece() - 1) / rows_a_piece(); }
  std::int64_t scratch() const { return pieces() * columns; }  ///< Elements.
};
inline MatrixShape matrix_shape(c10::IntArrayRef sizes) {
  MatrixShape shape{.rows = sizes[sizes.size() - 2], .columns = sizes.back()};
  for (std::size_t i = 0; i + 2 < sizes.size(); ++i) shape.count *= sizes[i];
  return shape;
}

template <class Wide>
struct AdafactorStep {
  double rate, weight_decay;
  Wide beta;  ///< Of the running averages, at this step.
  Wide eps;   ///< Added to squares.
  double clip_threshold;

  Wide keep() const { return static_cast<Wide>(1 - weight_decay * rate); }
  /// Updates with a larger root mean square than the threshold are scaled down to it.
  Wide size(double sum_of_squares, std::int64_t count) const {
    const double rms = std::sqrt(sum_of_squares / static_cast<double>(count));
    return static_cast<Wide>(rate / std::max(1.0, rms / clip_threshold));
  }
};

/// The sum of work(begin, end) over `count` elements.
template <class Work>
double sum_pieces(std::int64_t count, std::int64_t piece, const Work& work) {
  std::vector<double> sums(static_cast<std::size_t>((count + piece - 1) / piece));
  at::parallel_for(0, static_cast<std::int64_t>(sums.size()), 1, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t i = first; i < last; ++i) {
      sums[static_cast<std::size_t>(i)] = work(i * piece, std::min(count, (i + 1) * piece));
    }
  });
  double sum = 0;
  for (const double part : sums) sum += part;
  return sum;
}

template <class Wide, class Number>
double root_mean_square(const Number* numbers, std::int64_t count) {
  const double sum = sum_pieces(count, kPiece, [&](std::int64_t begin, std::int64_t end) {
    double part = 0;
    for (std::int64_t i = begin; i < end; ++i)
      part += static_cast<double>(numbers[i]) * static_cast<double>(numbers[i]);
    return part;
  });
  return std::sqrt(sum / static_cast<double>(std::max<std::int64_t>(count, 1)));
}

template <class Number, class Wide>
void step_whole(Number* parameter, const Number* gradient, Wide* square, std::int64_t count,
                const AdafactorStep<Wide>& step) {
  const double sum = sum_pieces(count, kPiece, [&](std::int64_t begin, std::int64_t end) {
    double part = 0;
    for (std::int64_t i = begin; i < end; ++i) {
      const Wide g = gradient[i];
      square[i] = step.beta * square[i] + (1 - step.beta) * (g * g + step.eps);
      part += static_cast<double>(g * g / square[i]);
    }
    return part;
  });
  const Wide size = step.size(sum, count), keep = step.keep();
  at::parallel_for(0, count, kPiece, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const Wide update = static_cast<Wide>(gradient[i]) / std::sqrt(square[i]);
      parameter[i] = static_cast<Number>(static_cast<Wide>(parameter[i]) * keep - size * update);
    }
  });
}

/// New averages of the squares' rows and columns of one matrix. `sums`: scratch.
template <class Number, class Wide>
void average_squares(const Number* gradient, Wide* row, Wide* column, const MatrixShape& shape, Wide* sums,
                     const AdafactorStep<Wide>& step) {
  const std::int64_t columns = shape.columns, height = shape.rows_a_piece();
  std::fill_n(sums, shape.scratch(), Wide{});
  at::parallel_for(0, shape.pieces(), 1, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t piece = first; piece < last; ++piece) {
      Wide* sum = sums + piece * columns;
      for (std::int64_t r = piece * height; r < std::min(shape.rows, (piece + 1) * height); ++r) {
        double along = 0;
        for (std::int64_t c = 0; c < columns; ++c) {
          const Wide g = gradient[r * columns + c], square = g * g + step.eps;
          sum[c] += square;
          along += static_cast<double>(square);
        }
        row[r] = step.beta * row[r] + (1 - step.beta) * static_cast<Wide>(along / static_cast<double>(columns));
      }
    }
  });
  for (std::int64_t c = 0; c < columns; ++c) {
    double down = 0;
    for (std::int64_t piece = 0; piece < shape.pieces(); ++piece)
      down += static_cast<double>(sums[piece * columns + c]);
    column[c] = step.beta * column[c] + (1 - step.beta) * static_cast<Wide>(down / static_cast<double>(shape.rows));
  }
}

/// Calls work(r, factor of the row) over rows in pieces; the factor of an element is that times factors[its column].
/// Returns the sum of what it returns.
template <class Wide, class Work>
double over_rows(const Wide* row, const Wide* column, const MatrixShape& shape, Wide* factors, const Work& work) {
  double mean = 0;
  for (std::int64_t r = 0; r < shape.rows; ++r) mean += static_cast<double>(row[r]);
  mean /= static_cast<double>(shape.rows);
  for (std::int64_t c = 0; c < shape.columns; ++c) factors[c] = 1 / std::sqrt(column[c]);
  return sum_pieces(shape.rows, shape.rows_a_piece(), [&](std::int64_t begin, std::int64_t end) {
    double part = 0;
    for (std::int64_t r = begin; r < end; ++r) {
      part += work(r, static_cast<Wide>(1 / std::sqrt(static_cast<double>(row[r]) / mean)));
    }
    return part;
  });
}

template <class Number, class Wide>
void step_factored(Number* parameter, const Number* gradient, Wide* row, Wide* column, const MatrixShape& shape,
                   Wide* scratch, const AdafactorStep<Wide>& step) {
  const std::int64_t columns = shape.columns, size_of_one = shape.rows * columns;
  double sum = 0;
  for (std::int64_t i = 0; i < shape.count; ++i) {
    const Number* g = gradient + i * size_of_one;
    average_squares(g, row + i * shape.rows, column + i * columns, shape, scratch, step);
    sum += over_rows(row + i * shape.rows, column + i * columns, shape, scratch, [&](std::int64_t r, Wide factor) {
      double part = 0;
      for (std::int64_t c = 0; c < columns; ++c) {
        const Wide update = static_cast<Wide>(g[r * columns + c]) * factor * scratch[c];
        part += static_cast<double>(update * update);
      }
      return part;
    });
  }
  const Wide size = step.size(sum, shape.count * size_of_one), keep = step.keep();
  for (std::int64_t i = 0; i < shape.count; ++i) {
    const Number* g = gradient + i * size_of_one;
    Number* p = parameter + i * size_of_one;
    over_rows(row + i * shape.rows, column + i * columns, shape, scratch, [&](std::int64_t r, Wide factor) {
      for (std::int64_t k = r * columns, c = 0; c < columns; ++k, ++c) {
        const Wide update = static_cast<Wide>(g[k]) * factor * scratch[c];
        p[k] = static_cast<Number>(static_cast<Wide>(p[k]) * keep - size * update);
      }
      return 0.0;
    });
  }
}
}  // namespace cinch::optim::internal
