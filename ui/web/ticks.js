// The ticks of an axis: few round values, and their labels.

/** Round values between low and high, about `count` of them and at least `least` apart. */
export function linearTicks(low, high, count, least = 0) {
  const rough = Math.max((high - low) / count, least);
  const power = 10 ** Math.floor(Math.log10(rough));
  const size = [1, 2, 5, 10].find((factor) => factor * power >= rough * (1 - 1e-9)) * power;
  const ticks = [];
  for (let k = Math.ceil(low / size - 1e-9); k * size <= high + size * 1e-9; k += 1) ticks.push(+(k * size).toPrecision(12));
  return ticks;
}

/** Powers of ten between low and high; also twice and five times them if there are fewer than three. */
export function logTicks(low, high, count = 6) {
  const inside = (factors) => {
    const ticks = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power += 1) {
      for (const factor of factors) ticks.push(+(factor * 10 ** power).toPrecision(3));
    }
    return ticks.filter((tick) => tick >= low * 0.999 && tick <= high * 1.001);
  };
  const powers = inside([1]);
  if (powers.length >= 3) return powers.filter((_, at) => at % Math.ceil(powers.length / count) === 0);
  const finer = inside([1, 2, 5]);
  return finer.length >= 2 ? finer : linearTicks(low, high, 4).filter((tick) => tick > 0);
}

/** A tick's label, without trailing zeros: 0.05, 2e-5, 12.5k. */
export function tickText(value) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size < 0.001) return value.toExponential(1).replace(".0e", "e");
  if (size >= 10000) return +(value / 1000).toPrecision(4) + "k";
  return String(+value.toPrecision(4));
}
