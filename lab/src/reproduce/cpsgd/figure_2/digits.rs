//! Deformed digits without end: ten figures drawn by hand as strokes, bent, turned and blurred anew for every number.
//!
//! It stands for the infinite MNIST data of the paper, whose images are other people's. A picture is a function of its
//! number: the same strokes under a random affine map (rotation, shear, size, place), a random smooth displacement (two
//! waves in each direction), a pen of random width, and noise on every pixel. Nobody's handwriting is in it.

use std::f32::consts::{PI, TAU};

use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

/// Pixels along one edge, and in all.
pub(super) const EDGE: usize = 8;
pub(super) const PIXELS: usize = EDGE * EDGE;

/// Kinds of picture.
pub(super) const CLASSES: usize = 10;

type Point = (f32, f32);

/// Pictures of one seed, by number.
#[derive(Debug, Clone)]
pub(super) struct Digits {
    seed: u64,
    /// One way or two to write each digit, as lines of points in the unit square, y downwards.
    shapes: [Vec<Vec<Vec<Point>>>; CLASSES],
}

impl Digits {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            seed,
            shapes: shapes(),
        }
    }

    /// Picture `number`: pixels of about 0 to 1, row by row, and the digit it shows. Numbers may be taken in any order.
    pub(super) fn draw(&self, number: u64, pixels: &mut [f32; PIXELS]) -> u32 {
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
        rng.set_stream(number);
        let mut uniform =
            |low: f32, high: f32| low + (high - low) * (rng.next_u32() >> 8) as f32 / (1u32 << 24) as f32;
        let digit = (uniform(0.0, CLASSES as f32) as usize).min(CLASSES - 1);
        let ways = &self.shapes[digit];
        let way = &ways[(uniform(0.0, ways.len() as f32) as usize).min(ways.len() - 1)];
        let map = Map::draw(&mut uniform);
        let lines: Vec<Vec<Point>> = way
            .iter()
            .map(|line| line.iter().map(|point| map.apply(*point)).collect())
            .collect();
        let (pen, blur) = (uniform(0.03, 0.07), 0.1);
        for (at, pixel) in pixels.iter_mut().enumerate() {
            let centre = |index: usize| (index as f32 + 0.5) / EDGE as f32;
            let place = (centre(at % EDGE), centre(at / EDGE));
            let nearest = lines
                .iter()
                .flat_map(|line| line.windows(2))
                .map(|ends| distance(place, ends[0], ends[1]));
            let nearest = nearest.fold(f32::INFINITY, f32::min);
            let ink = ((pen + blur - nearest) / blur).clamp(0.0, 1.0);
            *pixel = ink + uniform(-0.25, 0.25);
        }
        digit as u32
    }
}

/// An affine map about the middle, then waves.
struct Map {
    columns: [Point; 2],
    shift: Point,
    /// Amplitude, wave vector and phase of a displacement along x or y.
    waves: [(Point, Point, f32); 4],
}

impl Map {
    fn draw(uniform: &mut impl FnMut(f32, f32) -> f32) -> Self {
        let (turn, shear) = (uniform(-0.35, 0.35), uniform(-0.25, 0.25));
        let (wide, high) = (uniform(0.7, 1.05), uniform(0.75, 1.05));
        let (sin, cos) = turn.sin_cos();
        let wave = |uniform: &mut dyn FnMut(f32, f32) -> f32, along_x: bool| {
            let size = uniform(-0.06, 0.06);
            let amplitude = if along_x { (size, 0.0) } else { (0.0, size) };
            let vector = (uniform(-1.2, 1.2) * TAU, uniform(-1.2, 1.2) * TAU);
            (amplitude, vector, uniform(0.0, TAU))
        };
        Self {
            columns: [
                (cos * wide, sin * wide),
                ((shear * cos - sin) * high, (shear * sin + cos) * high),
            ],
            shift: (uniform(-0.1, 0.1), uniform(-0.08, 0.08)),
            waves: [true, true, false, false].map(|along_x| wave(uniform, along_x)),
        }
    }

    fn apply(&self, (x, y): Point) -> Point {
        let (x, y) = (x - 0.5, y - 0.5);
        let [(a, b), (c, d)] = self.columns;
        let (mut u, mut v) = (
            0.5 + a * x + c * y + self.shift.0,
            0.5 + b * x + d * y + self.shift.1,
        );
        for ((du, dv), (kx, ky), phase) in self.waves {
            let wave = (kx * x + ky * y + phase).sin();
            u += du * wave;
            v += dv * wave;
        }
        (u, v)
    }
}

/// Distance from a point to the line segment between two others.
fn distance((x, y): Point, (ax, ay): Point, (bx, by): Point) -> f32 {
    let (dx, dy) = (bx - ax, by - ay);
    let along = ((x - ax) * dx + (y - ay) * dy) / (dx * dx + dy * dy).max(1e-12);
    let along = along.clamp(0.0, 1.0);
    (x - ax - along * dx).hypot(y - ay - along * dy)
}

/// Part of an ellipse as a line: angles in half turns from the right, clockwise as the picture is seen.
fn arc(centre: Point, radii: Point, from: f32, to: f32) -> Vec<Point> {
    const PIECES: usize = 8;
    let at = |piece: usize| {
        let angle = PI * (from + (to - from) * piece as f32 / PIECES as f32);
        (centre.0 + radii.0 * angle.cos(), centre.1 + radii.1 * angle.sin())
    };
    (0..=PIECES).map(at).collect()
}

fn shapes() -> [Vec<Vec<Vec<Point>>>; CLASSES] {
    let round = |x, y, a, b| arc((x, y), (a, b), 0.0, 2.0);
    let bow = |x, y, a, b, from, to| arc((x, y), (a, b), from, to);
    [
        vec![vec![round(0.5, 0.5, 0.24, 0.36)]],
        vec![
            vec![vec![(0.36, 0.28), (0.52, 0.14), (0.52, 0.86)]],
            vec![
                vec![(0.36, 0.28), (0.52, 0.14), (0.52, 0.86)],
                vec![(0.34, 0.86), (0.7, 0.86)],
            ],
        ],
        vec![vec![
            bow(0.5, 0.34, 0.22, 0.2, 1.05, 2.2),
            vec![(0.7, 0.45), (0.28, 0.86), (0.75, 0.86)],
        ]],
        vec![
            vec![
                bow(0.47, 0.32, 0.22, 0.18, 1.15, 2.5),
                bow(0.47, 0.68, 0.25, 0.18, 1.5, 2.85),
            ],
            vec![
                vec![(0.28, 0.14), (0.7, 0.14), (0.46, 0.44)],
                bow(0.46, 0.65, 0.25, 0.21, 1.5, 2.85),
            ],
        ],
        vec![
            vec![vec![(0.6, 0.86), (0.6, 0.14), (0.24, 0.62), (0.78, 0.62)]],
            vec![
                vec![(0.3, 0.14), (0.28, 0.52), (0.7, 0.52)],
                vec![(0.66, 0.16), (0.64, 0.86)],
            ],
        ],
        vec![vec![
            vec![(0.7, 0.14), (0.34, 0.14), (0.31, 0.46)],
            bow(0.46, 0.63, 0.24, 0.22, 1.3, 2.85),
        ]],
        vec![vec![
            vec![(0.62, 0.12), (0.36, 0.42), (0.27, 0.66)],
            round(0.49, 0.66, 0.22, 0.2),
        ]],
        vec![
            vec![vec![(0.25, 0.14), (0.74, 0.14), (0.42, 0.86)]],
            vec![
                vec![(0.25, 0.14), (0.74, 0.14), (0.42, 0.86)],
                vec![(0.36, 0.5), (0.7, 0.5)],
            ],
        ],
        vec![vec![round(0.5, 0.32, 0.19, 0.18), round(0.5, 0.68, 0.23, 0.18)]],
        vec![
            vec![
                round(0.49, 0.34, 0.21, 0.2),
                vec![(0.7, 0.34), (0.66, 0.6), (0.52, 0.88)],
            ],
            vec![round(0.49, 0.34, 0.21, 0.2), vec![(0.7, 0.3), (0.7, 0.86)]],
        ],
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_are_functions_of_their_number() {
        let (digits, other) = (Digits::new(1), Digits::new(2));
        let draw = |digits: &Digits, number| {
            let mut pixels = [0.0; PIXELS];
            let label = digits.draw(number, &mut pixels);
            (label, pixels.map(f32::to_bits))
        };
        let first = draw(&digits, 7);
        assert_ne!(draw(&digits, 8), first);
        assert_ne!(draw(&other, 7), first);
        assert_eq!(draw(&digits, 7), first);
    }

    #[test]
    fn all_digits_come_equally_often_and_leave_ink() {
        let digits = Digits::new(3);
        let mut counts = [0u32; CLASSES];
        let mut pixels = [0.0; PIXELS];
        for number in 0..5000 {
            counts[digits.draw(number, &mut pixels) as usize] += 1;
            let ink: f32 = pixels.iter().sum();
            assert!(pixels.iter().all(|pixel| (-0.25..=1.25).contains(pixel)));
            assert!((1.0..50.0).contains(&ink), "{number}: {ink}");
        }
        // 500 each, standard deviation 21.2: six of them, false alarms below 1e-7.
        assert!(counts.iter().all(|count| count.abs_diff(500) < 128), "{counts:?}");
    }

    #[test]
    fn distances_match_those_by_hand() {
        assert!((distance((0.0, 1.0), (-1.0, 0.0), (1.0, 0.0)) - 1.0).abs() < 1e-6);
        assert!((distance((4.0, 4.0), (0.0, 0.0), (1.0, 0.0)) - 5.0).abs() < 1e-6);
        assert!((distance((3.0, 4.0), (0.0, 0.0), (0.0, 0.0)) - 5.0).abs() < 1e-6);
    }
}
