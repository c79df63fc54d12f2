//! The files of `deploy/` are what the programs that read them expect.

use std::path::PathBuf;

use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::{Namespace, PersistentVolumeClaim, PodSpec, Service, ServiceAccount};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

fn folder() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy"))
}

fn text(name: &str) -> String {
    let path = folder().join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn yaml(name: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(&text(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// All manifests, with the files that hold them.
fn manifests() -> Vec<(String, Value)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder().join("kubernetes")).expect("the folder of manifests") {
        let name = entry
            .expect("an entry")
            .file_name()
            .into_string()
            .expect("a name");
        assert!(name.ends_with(".yaml"), "{name}");
        let name = format!("kubernetes/{name}");
        found.extend(yaml(&name).into_iter().map(|value| (name.clone(), value)));
    }
    found
}

/// Reads a value into its type. A key that the type does not know, such as one with a wrong letter, would get lost: it fails.
fn typed<T: DeserializeOwned + Serialize>(name: &str, value: &Value) -> T {
    let read: T = serde_json::from_value(value.clone()).unwrap_or_else(|error| panic!("{name}: {error}"));
    let again = serde_json::to_value(&read).expect("JSON");
    kept(name, value, &again);
    read
}

/// Checks that every key of `given` is in `read`.
fn kept(place: &str, given: &Value, read: &Value) {
    match (given, read) {
        (Value::Object(given), Value::Object(read)) => {
            for (key, value) in given {
                let place = format!("{place}.{key}");
                // Empty maps are left out again.
                let empty = value.as_object().is_some_and(serde_json::Map::is_empty);
                match read.get(key) {
                    Some(found) => kept(&place, value, found),
                    None => assert!(
                        empty || key == "apiVersion" || key == "kind",
                        "{place} is unknown"
                    ),
                }
            }
        }
        (Value::Array(given), Value::Array(read)) => {
            assert_eq!(given.len(), read.len(), "{place}");
            for (at, (given, read)) in given.iter().zip(read).enumerate() {
                kept(&format!("{place}[{at}]"), given, read);
            }
        }
        _ => {}
    }
}

/// The kind of a manifest, after it was read into its type, with the pod that it starts.
fn check(name: &str, value: &Value) -> (String, Option<PodSpec>) {
    let kind = value["kind"]
        .as_str()
        .unwrap_or_else(|| panic!("{name}: no kind"))
        .to_owned();
    let version = match kind.as_str() {
        "Deployment" | "StatefulSet" => "apps/v1",
        "HorizontalPodAutoscaler" => "autoscaling/v2",
        "NetworkPolicy" => "networking.k8s.io/v1",
        "PodDisruptionBudget" => "policy/v1",
        _ => "v1",
    };
    assert_eq!(value["apiVersion"], version, "{name}: {kind}");
    let mut pod = None;
    match kind.as_str() {
        "Namespace" => drop(typed::<Namespace>(name, value)),
        "ServiceAccount" => drop(typed::<ServiceAccount>(name, value)),
        "PersistentVolumeClaim" => drop(typed::<PersistentVolumeClaim>(name, value)),
        "Service" => drop(typed::<Service>(name, value)),
        "HorizontalPodAutoscaler" => drop(typed::<HorizontalPodAutoscaler>(name, value)),
        "PodDisruptionBudget" => drop(typed::<PodDisruptionBudget>(name, value)),
        "NetworkPolicy" => drop(typed::<NetworkPolicy>(name, value)),
        "Deployment" => {
            pod = typed::<Deployment>(name, value)
                .spec
                .and_then(|spec| spec.template.spec);
        }
        "StatefulSet" => {
            pod = typed::<StatefulSet>(name, value)
                .spec
                .and_then(|spec| spec.template.spec);
        }
        other => panic!("{name}: the kind {other} is not checked"),
    }
    (kind, pod)
}

#[test]
fn every_manifest_reads_into_its_type_without_an_unknown_key() {
    let mut kinds: Vec<String> = manifests()
        .iter()
        .map(|(name, value)| check(name, value).0)
        .collect();
    kinds.sort();
    let count = |kind: &str| kinds.iter().filter(|found| *found == kind).count();
    assert_eq!(count("Deployment"), 2, "{kinds:?}");
    assert_eq!(count("StatefulSet"), 1, "{kinds:?}");
    assert_eq!(count("PodDisruptionBudget"), 3, "{kinds:?}");
    assert_eq!(count("HorizontalPodAutoscaler"), 1, "{kinds:?}");
    assert!(count("NetworkPolicy") >= 3, "{kinds:?}");
}

#[test]
fn an_unknown_key_of_a_manifest_is_found() {
    let (name, mut value) = manifests()
        .into_iter()
        .find(|(_, value)| value["kind"] == "Deployment")
        .expect("a deployment");
    value["spec"]["template"]["spec"]["containers"][0]["securityContext"]["readonlyRootFilesystem"] =
        true.into();
    let found = std::panic::catch_unwind(|| check(&name, &value));
    assert!(found.is_err());
}

#[test]
fn every_pod_is_without_root_and_writes_to_its_volumes_alone() {
    let mut pods = 0;
    for (name, value) in manifests() {
        let (_, Some(pod)) = check(&name, &value) else {
            continue;
        };
        pods += 1;
        let outer = pod.security_context.expect("a security context");
        assert_eq!(outer.run_as_non_root, Some(true), "{name}");
        assert!(outer.run_as_user > Some(0), "{name}");
        assert_eq!(pod.automount_service_account_token, Some(false), "{name}");
        // A stop takes at most 20 s.
        assert!(pod.termination_grace_period_seconds > Some(20), "{name}");
        for container in &pod.containers {
            let inner = container.security_context.as_ref().expect("a security context");
            assert_eq!(inner.read_only_root_filesystem, Some(true), "{name}");
            assert_eq!(inner.allow_privilege_escalation, Some(false), "{name}");
            let dropped = inner.capabilities.as_ref().and_then(|found| found.drop.clone());
            assert_eq!(dropped.as_deref(), Some(&["ALL".to_owned()][..]), "{name}");
            for probe in [
                &container.startup_probe,
                &container.readiness_probe,
                &container.liveness_probe,
            ] {
                let asked = probe.as_ref().and_then(|probe| probe.http_get.as_ref());
                assert!(asked.is_some(), "{name}: a probe that asks for no answer");
            }
            let mounts = container.volume_mounts.iter().flatten();
            for mount in mounts {
                let volumes = pod.volumes.iter().flatten();
                assert!(
                    volumes.clone().any(|volume| volume.name == mount.name),
                    "{name}: {}",
                    mount.name
                );
            }
        }
    }
    assert_eq!(pods, 3);
}

#[test]
fn selectors_name_labels_that_a_pod_has() {
    let all = manifests();
    let labels: Vec<Value> = all
        .iter()
        .map(|(_, value)| value["spec"]["template"]["metadata"]["labels"].clone())
        .filter(Value::is_object)
        .collect();
    let fits = |wanted: &Value| {
        labels.iter().any(|labels| {
            let wanted = wanted.as_object().into_iter().flatten();
            wanted.clone().count() > 0 && wanted.clone().all(|(key, value)| labels[key] == *value)
        })
    };
    let mut checked = 0;
    for (name, value) in &all {
        let selector = match value["kind"].as_str() {
            Some("Service") => &value["spec"]["selector"],
            Some("Deployment" | "StatefulSet" | "PodDisruptionBudget") => {
                &value["spec"]["selector"]["matchLabels"]
            }
            _ => continue,
        };
        assert!(fits(selector), "{name}: {selector}");
        checked += 1;
    }
    assert_eq!(checked, 9);
}

#[test]
fn the_compose_file_starts_three_processes_over_one_database() {
    let compose = yaml("compose.yaml").remove(0);
    let services = compose["services"].as_object().expect("services");
    let mut roles = Vec::new();
    for (name, service) in services {
        if name == "database" {
            assert!(service["healthcheck"]["test"].is_array());
            continue;
        }
        assert_eq!(service["read_only"], true, "{name}");
        assert_eq!(service["cap_drop"][0], "ALL", "{name}");
        assert_eq!(
            service["depends_on"]["database"]["condition"], "service_healthy",
            "{name}"
        );
        let arguments: Vec<&str> = service["command"]
            .as_array()
            .expect("a command")
            .iter()
            .filter_map(Value::as_str)
            .collect();
        assert_eq!(arguments[0], "serve", "{name}");
        assert!(arguments.contains(&"--data=/data"), "{name}");
        // PRIVACY: the password stands in a file, and in no argument.
        assert!(
            arguments.contains(&"--store-file=/run/secrets/store.url"),
            "{name}"
        );
        assert_eq!(service["secrets"][0], "store.url", "{name}");
        roles.extend(
            arguments
                .iter()
                .filter_map(|argument| argument.strip_prefix("--roles=")),
        );
        for volume in service["volumes"].as_array().expect("volumes") {
            let volume = volume
                .as_str()
                .and_then(|volume| volume.split(':').next())
                .expect("a volume");
            assert!(compose["volumes"].get(volume).is_some(), "{name}: {volume}");
        }
    }
    roles.sort_unstable();
    assert_eq!(roles, ["aggregator", "front", "leader"]);
}

#[test]
fn the_container_file_has_two_stages_and_ends_as_a_user_without_rights() {
    let file = text("Containerfile");
    let instructions: Vec<&str> = file
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .collect();
    let stages = instructions
        .iter()
        .filter(|line| line.starts_with("FROM "))
        .count();
    assert_eq!(stages, 2);
    let user = instructions
        .iter()
        .rposition(|line| line.starts_with("USER "))
        .expect("a user");
    assert!(!instructions[user].contains("root") && !instructions[user].starts_with("USER 0"));
    assert!(instructions[user..].contains(&"VOLUME /data"));
    assert!(instructions[user..].iter().all(|line| !line.starts_with("RUN ")));
    let toolchain = instructions[0].split(':').nth(1).expect("a tag");
    let workspace = std::fs::read_to_string(folder().join("../Cargo.toml")).expect("the manifest");
    let version = toolchain.split('-').next().expect("a version");
    assert!(
        workspace.contains(&format!("rust-version = \"{version}\"")),
        "{version}"
    );
}
