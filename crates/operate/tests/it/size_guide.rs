//! The tables of `docs/guide/size-a-service.md` are what `task estimate` computes.

use std::fmt::Write as _;

use undertone_operate::estimate::{Estimate, Groups, PopulationAssumptions, Rates, TaskShape, estimate};

const GUIDE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/size-a-service.md");

/// Writes the tables again where this variable is set, instead of comparing them.
const REGENERATE: &str = "UNDERTONE_REGENERATE";

/// A production task of [Gboard].
struct Production {
    name: &'static str,
    population: f64,
    goal: u64,
    rounds: u64,
    min_sep: u64,
    max_part: u64,
    secure: bool,
}

const TASKS: [Production; 6] = [
    of("pt-PT", 0.83e6, 3_000, 430, 92, 4),
    of("es-ES", 4.21e6, 6_500, 1_280, 300, 4),
    of("id-ID", 8.9e6, 6_500, 2_350, 447, 5),
    of("pt-BR", 16.6e6, 6_500, 2_000, 2_001, 1),
    of("pt-BR, goal 12,000", 16.6e6, 12_000, 2_000, 1_181, 2),
    Production {
        secure: true,
        ..of("es-ES, secure sums", 4.21e6, 6_500, 1_280, 300, 4)
    },
];

const fn of(
    name: &'static str,
    population: f64,
    goal: u64,
    rounds: u64,
    min_sep: u64,
    max_part: u64,
) -> Production {
    Production {
        name,
        population,
        goal,
        rounds,
        min_sep,
        max_part,
        secure: false,
    }
}

impl Production {
    /// A CIFG with 6.4 million parameters, as all of them are, and the default deadlines of a task file.
    fn shape(&self) -> TaskShape {
        let parameters = 6_400_000;
        // Secure sums pad to a power of two, at 22 bits per coordinate.
        let coordinates = if self.secure { 1 << 23 } else { parameters };
        TaskShape {
            rounds: self.rounds,
            goal: self.goal,
            sessions: self.goal * 13 / 10,
            min_sep: self.min_sep,
            max_part: self.max_part,
            parameters,
            coordinates,
            model_bytes: 4 * parameters,
            plan_bytes: 4_096,
            upload_bytes: if self.secure {
                coordinates * 22 / 8
            } else {
                4 * parameters
            },
            noise_buffers: 4,
            groups: self.secure.then_some(Groups {
                size: 500,
                neighbours: 48,
                phases_s: 120.0,
            }),
            select_s: 600.0,
            report_s: 1_200.0,
            attempt_s: 3_600.0,
            timer_s: 86_400.0,
            min_interval_s: 900.0,
            checkins_per_needed: 3.0,
            epochs: 1,
            min_examples: 8,
            max_examples: 256,
            cpu_limit_s: 120.0,
            upload_kbps_min: 128.0,
        }
    }

    fn estimate(&self) -> Estimate {
        // The populations of the paper are those of eligible devices.
        let conditions = PopulationAssumptions {
            population: self.population,
            eligible: 1.0,
            ..PopulationAssumptions::default()
        };
        estimate(&self.shape(), &conditions, &Rates::default()).unwrap()
    }
}

fn grouped(value: f64) -> String {
    let digits = (value.round() as u64).to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn tables() -> String {
    let mut text = String::new();
    let line = |text: &mut String, cells: &[String]| {
        writeln!(text, "| {} |", cells.join(" | ")).unwrap();
    };
    let head = |text: &mut String, names: &[&str]| {
        line(text, &names.iter().map(ToString::to_string).collect::<Vec<_>>());
        line(text, &names.iter().map(|_| "---".to_owned()).collect::<Vec<_>>());
    };
    head(
        &mut text,
        &[
            "task",
            "eligible devices",
            "needed",
            "sessions per round",
            "seconds per round",
            "rounds per day",
            "days",
        ],
    );
    for task in &TASKS {
        let found = task.estimate();
        assert_eq!(found.obstacles, Vec::<String>::new(), "{}", task.name);
        line(
            &mut text,
            &[
                task.name.to_owned(),
                grouped(found.eligible_devices),
                grouped(found.needed.max()),
                grouped(found.sessions_per_round),
                grouped(found.round_seconds),
                grouped(found.rounds_per_day),
                format!("{:.1}", found.days),
            ],
        );
    }
    text.push('\n');
    head(
        &mut text,
        &[
            "task",
            "cores",
            "memory, GB",
            "spool, GB",
            "disk, GB",
            "out per round, GB",
            "out, Mbit/s",
            "out in all, TB",
        ],
    );
    for task in &TASKS {
        let server = task.estimate().server;
        line(
            &mut text,
            &[
                task.name.to_owned(),
                grouped(server.cores),
                format!("{:.1}", server.memory_bytes / 1e9),
                grouped(server.spool_bytes / 1e9),
                grouped(server.disk_bytes / 1e9),
                grouped(server.egress_bytes / 1e9),
                grouped(server.egress_mbps),
                grouped(server.total_egress_bytes / 1e12),
            ],
        );
    }
    text.push('\n');
    head(
        &mut text,
        &[
            "task",
            "loads, MB",
            "sends, MB",
            "processor, s",
            "busy, s",
            "rounds in all",
        ],
    );
    for task in &TASKS {
        let device = task.estimate().device;
        line(
            &mut text,
            &[
                task.name.to_owned(),
                format!("{:.1}", device.down_bytes / 1e6),
                format!("{:.1}", device.up_bytes / 1e6),
                format!("{:.2}", device.cpu_seconds),
                grouped(device.session_seconds),
                format!("{:.2}", device.participations),
            ],
        );
    }
    text
}

#[test]
fn the_tables_of_the_guide_are_what_the_estimate_computes() {
    let guide = std::fs::read_to_string(GUIDE).unwrap();
    let (start, end) = ("<!-- computed -->\n", "<!-- end -->");
    let (before, rest) = guide.split_once(start).expect("the first mark");
    let (kept, after) = rest.split_once(end).expect("the second mark");
    let made = tables();
    if std::env::var_os(REGENERATE).is_some() {
        std::fs::write(GUIDE, format!("{before}{start}{made}{end}{after}")).unwrap();
        return;
    }
    assert_eq!(kept, made, "run this test with {REGENERATE}=1");
}

#[test]
fn a_tenth_of_the_population_does_not_carry_the_tasks() {
    for task in &TASKS {
        let small = Production {
            population: task.population / 10.0,
            ..*task
        };
        assert!(!small.estimate().obstacles.is_empty(), "{}", task.name);
    }
}

#[test]
fn the_guide_states_the_rates_that_the_estimate_uses() {
    let guide = std::fs::read_to_string(GUIDE).unwrap();
    let rates = Rates::default();
    for (name, value) in [
        ("train_s_per_word", rates.train_s_per_word),
        ("encode_s", rates.encode_s),
        ("mask_words_per_core_s", rates.mask_words_per_core_s),
        ("upload_bytes_per_core_s", rates.upload_bytes_per_core_s),
        ("download_bytes_per_core_s", rates.download_bytes_per_core_s),
        ("checkins_per_core_s", rates.checkins_per_core_s),
        ("assignments_per_core_s", rates.assignments_per_core_s),
        ("boards_per_core_s", rates.boards_per_core_s),
        ("release_s_per_parameter", rates.release_s_per_parameter),
    ] {
        let row = guide.lines().find(|line| line.contains(&format!("`{name}`")));
        let row = row.unwrap_or_else(|| panic!("no row of {name}"));
        let number = row.split('|').nth(2).unwrap().trim();
        assert_eq!(number.parse::<f64>().unwrap(), value, "{row}");
    }
}
