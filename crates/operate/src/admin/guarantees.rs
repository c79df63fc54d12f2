//! The guarantee of each task by its ledger, computed once per line: its cost grows with the ledger.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use undertone_coordinator::participation::ParticipantId;
use undertone_coordinator::privacy_report::Claims;
use undertone_coordinator::record::{LedgerEnd, LedgerEntry, LedgerLine, PrivacyReport};
use undertone_service::metrics::in_steps;
use undertone_service::server::Service;
use undertone_service::task::Task;
use undertone_service::{Result, ServiceError};
use undertone_store::{TaskId, TaskRow};

use super::views::damaged_ledger;

/// Rounds of a ledger for which the guarantee is computed at the first look.
const POINTS: usize = 16;

/// Max number of bars of a histogram.
const BARS: u64 = 16;

/// The guarantee of a task at a line of its ledger.
pub(crate) struct Guarantee {
    /// The digest of the line.
    pub(crate) chain: String,
    /// Number of released rounds.
    pub(crate) round: u64,
    pub(crate) report: PrivacyReport,
    /// Number of released rounds, and the epsilon after them.
    pub(crate) history: Vec<(u64, f64)>,
    /// Rounds between two participations, as ranges with both ends, and the subjects that have such a distance. `None` below ten.
    pub(crate) separations: Vec<(u64, u64, Option<u64>)>,
    /// Number of rounds that were released as quarantined.
    pub(crate) quarantined: u64,
    /// Number of abandoned attempts by their reason.
    pub(crate) abandoned: BTreeMap<String, u64>,
}

/// The guarantees of the tasks of a service.
#[derive(Default)]
pub(crate) struct Guarantees {
    known: Mutex<BTreeMap<TaskId, Arc<Guarantee>>>,
    /// Tasks never change once they are created.
    tasks: Mutex<BTreeMap<TaskId, Arc<Task>>>,
    /// The norm of the noise of a round, over the standard deviation of its draws: at most, by task.
    noise: Mutex<BTreeMap<TaskId, f64>>,
    /// Tasks whose guarantee is being computed.
    busy: Mutex<BTreeSet<TaskId>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Guarantees {
    /// The newest guarantee that was computed; it may be that of an earlier line.
    pub(crate) fn last(&self, task: TaskId) -> Option<Arc<Guarantee>> {
        lock(&self.known).get(&task).cloned()
    }

    /// A task, loaded once.
    pub(crate) fn task(&self, service: &Service, row: &TaskRow) -> Result<Arc<Task>> {
        if let Some(task) = lock(&self.tasks).get(&row.task.id) {
            return Ok(task.clone());
        }
        let shared = service.shared();
        let task = Arc::new(Task::load(row, shared.blobs.as_ref(), &shared.keys)?);
        lock(&self.tasks).insert(row.task.id, task.clone());
        Ok(task)
    }

    /// The factor from the standard deviation of the noise draws to the norm of the noise in a round's average, at most.
    ///
    /// # Errors
    /// From the store and the mechanism.
    pub(crate) fn noise_factor(&self, service: &Service, row: &TaskRow) -> Result<f64> {
        if let Some(factor) = lock(&self.noise).get(&row.task.id) {
            return Ok(*factor);
        }
        let task = self.task(service, row)?;
        let largest = match task.privacy.bounded() {
            None => 1.0,
            Some(bounded) => bounded
                .mechanism()
                .largest_row()
                .map_err(|error| ServiceError::Value {
                    key: format!("the mechanism of task {}", row.task.name),
                    expected: "one whose noise can be computed".to_owned(),
                    got: error.to_string(),
                })?,
        };
        let factor = largest * (task.privacy.layout().len() as f64).sqrt();
        lock(&self.noise).insert(row.task.id, factor);
        Ok(factor)
    }

    /// Computes the guarantee of a row anew, unless another thread does so now.
    ///
    /// # Errors
    /// From the store and the accountant.
    pub(crate) fn refresh(&self, service: &Service, row: &TaskRow) -> Result<()> {
        let id = row.task.id;
        if !lock(&self.busy).insert(id) {
            return Ok(());
        }
        let made = self.current(service, row);
        lock(&self.busy).remove(&id);
        made.map(|_| ())
    }

    /// The guarantee of a row.
    ///
    /// # Errors
    /// From the store and the accountant.
    pub(crate) fn current(&self, service: &Service, row: &TaskRow) -> Result<Arc<Guarantee>> {
        let before = self.last(row.task.id);
        if let Some(found) = before.as_ref().filter(|found| found.chain == row.chain) {
            return Ok(found.clone());
        }
        let task = self.task(service, row)?;
        let made = Arc::new(compute(service, &task, row, before.as_deref())?);
        lock(&self.known).insert(row.task.id, made.clone());
        Ok(made)
    }
}

fn compute(service: &Service, task: &Task, row: &TaskRow, before: Option<&Guarantee>) -> Result<Guarantee> {
    let counts = undertone_run_directory::task::counts(&task.file, task.vocab.len())?;
    let claims = Claims::of_task(&task.file, counts, &task.privacy)?;
    let (mut entries, mut end): (Vec<LedgerEntry>, Option<LedgerEnd>) = (Vec::new(), None);
    for line in service.shared().store.ledger(task.id, 0)? {
        match LedgerLine::read(&line).map_err(|error| damaged_ledger(&error))? {
            LedgerLine::Round(entry) => entries.push(*entry),
            LedgerLine::End(found) => end = Some(found),
        }
    }
    let report = claims.report(&entries, end.as_ref())?;
    let mut history: BTreeMap<u64, f64> = match before {
        Some(before) => before.history.iter().copied().collect(),
        None => earlier(&claims, &entries)?,
    };
    history.extend(
        report
            .observed
            .as_ref()
            .map(|observed| (entries.len() as u64, observed.epsilon)),
    );
    let mut abandoned = BTreeMap::<String, u64>::new();
    let last = end.iter().flat_map(|end| &end.attempts);
    for attempt in entries.iter().flat_map(|entry| &entry.attempts).chain(last) {
        let name = serde_json::to_value(attempt.reason).map_err(|error| damaged_ledger(&error))?;
        let name = name.as_str().unwrap_or_default().to_owned();
        *abandoned.entry(name).or_default() += 1;
    }
    Ok(Guarantee {
        // The ledger may have grown since the row was read; then the next look computes once more.
        chain: row.chain.clone(),
        round: entries.len() as u64,
        separations: separations(&entries),
        quarantined: entries.iter().filter(|entry| entry.quarantined).count() as u64,
        history: history.into_iter().collect(),
        abandoned,
        report,
    })
}

/// The epsilon after some of the rounds so far.
fn earlier(claims: &Claims<'_>, entries: &[LedgerEntry]) -> Result<BTreeMap<u64, f64>> {
    let mut history = BTreeMap::new();
    for point in 1..POINTS {
        let rounds = entries.len() * point / POINTS;
        if rounds > 0 && !history.contains_key(&(rounds as u64)) {
            let report = claims.report(&entries[..rounds], None)?;
            history.extend(report.observed.map(|observed| (rounds as u64, observed.epsilon)));
        }
    }
    Ok(history)
}

/// The distances of participations. A subject counts once per bar.
fn separations(entries: &[LedgerEntry]) -> Vec<(u64, u64, Option<u64>)> {
    let mut last = HashMap::<ParticipantId, u64>::new();
    let mut found = BTreeMap::<u64, BTreeSet<ParticipantId>>::new();
    for entry in entries {
        for user in entry.everyone() {
            if let Some(before) = last.insert(user, entry.round) {
                let distance = entry.round.saturating_sub(before);
                found.entry(distance).or_default().insert(user);
            }
        }
    }
    let (Some((&first, _)), Some((&end, _))) = (found.first_key_value(), found.last_key_value()) else {
        return Vec::new();
    };
    let width = (end - first + 1).div_ceil(BARS);
    let bars = (end - first + 1).div_ceil(width);
    (0..bars)
        .map(|bar| {
            let from = first + bar * width;
            let to = from + width - 1;
            let subjects: BTreeSet<&ParticipantId> =
                found.range(from..=to).flat_map(|(_, users)| users).collect();
            (from, to, in_steps(subjects.len() as u64))
        })
        .collect()
}
