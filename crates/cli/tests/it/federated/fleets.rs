//! Simulated fleets, the demonstration, and devices that are barred.

use super::*;

#[test]
#[ignore = "slow"]
fn a_fleet_plays_a_task_to_its_end_and_shows_how_far_its_sessions_came() {
    // A round with vanished devices waits for this deadline.
    let folder = service_of(&[("report = \"1m\"", "report = \"8s\"")]);
    folder.write(
        "faults.toml",
        "lost_after = 0.02\nvanish = [{ at = \"after_join\", probability = 0.05, returns_after_ms = 500 }]\n",
    );
    let mut server = Server::start(&folder, "--insecure --exit");
    folder.succeed("task activate federated --data service");
    let shown = folder.json(format!(
        "fleet federated.toml --data service --population demo --devices 24 --server {} --max-pause 1 --faults faults.toml \
         --malicious 0.05:over-norm --updates synthetic --seed 5 --threads 2",
        server.url
    ));
    contains(&server.ended(PATIENCE), "federated: completed, 4 of 4 rounds");
    assert_eq!(
        shown["ended"], "the tasks of the population have ended",
        "{shown}"
    );
    assert_eq!(shown["devices"], 24);
    let total = &shown["statistics"]["total"];
    // Four devices are in each of four rounds. On a slow machine some of them give up before they learn their verdict.
    let ends = |end: &str| total["ends"][end].as_u64().unwrap_or(0);
    assert!(
        ends("included") >= 4 && ends("included") + ends("reported") >= 8,
        "{shown}"
    );
    assert!(total["faults"]["lost_after"].as_u64() >= Some(1), "{shown}");
    folder.succeed("task export federated out --data service");
    folder.succeed("verify out");
}

#[test]
#[ignore = "slow"]
fn the_demonstration_needs_no_folder_and_its_export_verifies() {
    let folder = folder();
    let shown = folder.json("serve --demo --rounds 2 --exit");
    let run = shown["run"].as_str().unwrap_or_else(|| panic!("{shown}"));
    folder.succeed(format!("verify {run}"));
    assert!(folder.path("undertone-demo").is_dir());
}

#[test]
#[ignore = "slow"]
fn a_fleet_ends_by_its_time_with_a_funnel_and_refuses_settings_by_name() {
    let folder = service();
    let server = Server::start(&folder, "--insecure");
    let fleet = |more: &str| {
        format!(
            "fleet federated.toml --data service --population demo --devices 4 --server {} --max-pause 1 --threads 1 {more}",
            server.url
        )
    };
    // The task is a draft, so no device is assigned.
    folder.write("windows.toml", "period_seconds = 10\nwindows = [[[0, 9]]]\n");
    folder.show(
        fleet("--seconds 2 --trace windows.toml"),
        "funnel ... sessions ... assigned to a round ... included in a release ... not eligible ... the time is over",
    );
    folder.write("bad.toml", "period_seconds = 10\nwindows = [[[5, 11]]]\n");
    folder.refuse(
        fleet("--trace bad.toml"),
        "availability.windows ... within 10000 ms",
    );
    folder.refuse(
        fleet("--malicious 0.05:kind"),
        "a fraction, a colon and one of over-norm",
    );
    folder.refuse(fleet("--updates none"), "train, synthetic or one-hot");
    folder.write("faults.toml", "lost_after = 1.5\n");
    folder.refuse(fleet("--faults faults.toml"), "faults.lost_after");
    folder.write("few.txt", "00\n");
    folder.refuse(
        format!(
            "fleet federated.toml --keys keys.json --invitations few.txt --population demo --devices 4 --server {}",
            server.url
        ),
        "--invitations: expected one per device, 4 of them, got 1",
    );
}

#[test]
#[ignore = "slow"]
fn a_revoked_device_and_a_forgotten_one_take_no_part() {
    let folder = service();
    folder.succeed("task activate federated --data service");
    let server = Server::start(&folder, "--insecure");
    let invitation = &invitations(&folder, 1)[0];
    enrol(&folder, 0, invitation, &server.url);
    let key = folder.json("device status --folder device-0")["device"].clone();
    // Its key renews its certificate, until it is revoked.
    assert_eq!(
        folder.json("device enrol --folder device-0 --again")["device"],
        key
    );
    folder.succeed(format!(
        "identity revoke {} --data service",
        key.as_str().expect("a key")
    ));
    let refused = (0..50).find_map(|_| {
        let outcome = folder.json("device run --folder device-0");
        std::thread::sleep(Duration::from_millis(200));
        (outcome["ended"] == "rejected").then_some(outcome)
    });
    contains(&refused.expect("a refusal")["message"].to_string(), "revoked");
    folder.refuse(
        "device enrol --folder device-0 --again",
        "the key of this device was revoked",
    );
    folder.refuse(
        "device enrol --folder device-1 --server http://127.0.0.1:9 --population demo --keys keys.json --again",
        "cannot be used with",
    );
    folder.refuse("device forget --folder device-0", "--yes");
    folder.succeed("device forget --folder device-0 --yes");
    folder.refuse("device status --folder device-0", "holds no device");
    assert!(!folder.path("device-0").exists(), "files of the device are left");
}
