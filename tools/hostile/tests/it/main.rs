//! Hostile inputs for every reader: of files, and of the messages of the service.

mod federated;
mod hostile;
