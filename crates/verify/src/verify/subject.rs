//! The settings of the directory that is verified: those of a run, or of a task of the service.

use std::path::Path;

use undertone_coordinator::task::{TaskConfig, TaskFile, TaskPurpose};

use super::Check;
use super::same::exactly;
use undertone_run_directory::config::RunConfig;
use undertone_run_directory::error::Result;
use undertone_run_directory::files;
use undertone_run_directory::files::names::{CONFIG_FILE, SERVICE_FILE, TASK_FILE};
use undertone_run_directory::initial_model::SourceName;
use undertone_run_directory::ledger::{genesis_of, genesis_of_session};
use undertone_run_directory::session_config::SessionConfig;
use undertone_run_directory::task::{self, ServiceRecord};

/// The settings of the directory that is verified.
pub(super) enum Subject {
    /// A run that `undertone train` made.
    Run(Box<RunConfig>),
    /// A session, whose model another program trained.
    Session(Box<SessionConfig>),
    /// A task of the service that `undertone task export` wrote.
    Task {
        file: Box<TaskFile>,
        record: ServiceRecord,
    },
}

impl Subject {
    /// The settings that privacy depends on.
    pub(super) fn task(&self) -> &TaskConfig {
        match self {
            Self::Run(config) => &config.task,
            Self::Session(config) => &config.task,
            Self::Task { file, .. } => &file.task,
        }
    }

    /// The task file of a service.
    pub(super) fn file(&self) -> Option<&TaskFile> {
        match self {
            Self::Run(_) | Self::Session(_) => None,
            Self::Task { file, .. } => Some(file),
        }
    }

    /// `true` if no model is trained.
    pub(super) fn is_evaluation(&self) -> bool {
        self.file()
            .is_some_and(|file| matches!(file.purpose, TaskPurpose::Evaluate { .. }))
    }

    /// The name of the file with the settings.
    pub(super) fn file_name(&self) -> &'static str {
        match self {
            Self::Run(_) | Self::Session(_) => CONFIG_FILE,
            Self::Task { .. } => TASK_FILE,
        }
    }

    /// `true` if another program trained the model.
    pub(super) fn is_external(&self) -> bool {
        matches!(self, Self::Session(_))
    }

    /// The name of the text that was read; `None` where the text is not known.
    pub(super) fn source_name(&self, folder: &Path) -> Result<Option<String>> {
        Ok(match self {
            Self::Run(config) => Some(SourceName::of(folder, &config.data)?.public),
            Self::Session(_) => None,
            Self::Task { record, .. } => Some(task::source_sha256(&record.population)),
        })
    }

    /// `false` if no person wrote the text.
    pub(super) fn is_of_people(&self) -> bool {
        match self {
            Self::Run(config) => config.data.source.is_of_people(),
            Self::Session(_) | Self::Task { .. } => true,
        }
    }

    /// The digest that the first line of the ledger follows.
    pub(super) fn genesis(&self, folder: &Path) -> Result<String> {
        match self {
            Self::Run(_) => genesis_of(folder),
            Self::Session(_) => genesis_of_session(folder),
            Self::Task { file, record } => task::genesis_of(folder, &file.id(&record.population)?),
        }
    }
}

/// Reads and checks the settings.
pub(super) fn read(folder: &Path, of_task: bool) -> (Check, Option<Subject>) {
    let mut check = Check::new("configuration");
    let subject = match of_task {
        false => {
            let path = folder.join(CONFIG_FILE);
            let read = files::read_text(&path).and_then(|text| match SessionConfig::is_of_session(&text) {
                true => SessionConfig::parse(&text, &path).map(|config| Subject::Session(Box::new(config))),
                false => RunConfig::parse(&text, &path, &[]).map(|config| Subject::Run(Box::new(config))),
            });
            if files::exists(&folder.join(TASK_FILE)) {
                check.problem(format!(
                    "{TASK_FILE}: a directory holds a run or a task, and there is a {CONFIG_FILE}"
                ));
            }
            check.keep(read)
        }
        true => task_of(folder, &mut check),
    };
    check.found = match (of_task, &subject) {
        (false, Some(Subject::Session(_))) => "config.toml is that of a session".to_owned(),
        (false, _) => "config.toml is a valid run file".to_owned(),
        (true, _) => "task.toml is a valid task file".to_owned(),
    };
    (check, subject)
}

fn task_of(folder: &Path, check: &mut Check) -> Option<Subject> {
    let file = check.keep(undertone_run_directory::task::exported(folder));
    let bytes = check.keep(files::read(&folder.join(SERVICE_FILE)))?;
    match exactly::<ServiceRecord>(SERVICE_FILE, &bytes) {
        Ok(record) => Some(Subject::Task {
            file: Box::new(file?),
            record,
        }),
        Err(problems) => {
            check.problems(problems);
            None
        }
    }
}
