//! The keys of a device: enrolment, renewal and the end.

use std::path::PathBuf;
use std::sync::atomic::Ordering;

use undertone_device::{AlwaysMet, DeviceError, NetworkLost, Reply, Request, Stop, Transport};
use undertone_protocol::{Code, Enrol, Enrolled, limits, read, verify_proof, write};

use crate::device::lab::{Enroller, Lab, files};
use crate::harness;
use crate::harness::START;

#[test]
fn an_enrolment_needs_an_invitation_and_fits_the_device() {
    let lab = Lab::new();
    let mut device = lab.open();
    assert!(!device.status().unwrap().enrolled);
    let refused = device.enrol(&mut Enroller, "another", None).unwrap_err();
    assert!(
        matches!(
            refused,
            DeviceError::Enrolment {
                code: "CODE_BAD_CERTIFICATE",
                ..
            }
        ),
        "{refused}"
    );
    lab.clock.0.store(START, Ordering::SeqCst);
    device.enrol(&mut Enroller, "an invitation", None).unwrap();
    assert!(device.status().unwrap().enrolled);
    // A certificate for another key is not kept.
    struct OfAnother;
    impl Transport for OfAnother {
        fn send(&mut self, _: &Request) -> Result<Reply, NetworkLost> {
            Ok(Reply {
                status: 200,
                offset: None,
                body: write(&Enrolled {
                    certificate: Some(harness::certificate(&[1; 32])),
                }),
            })
        }
    }
    assert!(device.enrol(&mut OfAnother, "an invitation", None).is_err());
    assert!(device.status().unwrap().enrolled);
}

#[test]
fn a_certificate_is_renewed_by_the_key_of_its_device_before_it_ends() {
    const DAY: u64 = 24 * 3_600_000;
    /// A service that renews for 30 days, and refuses everything else.
    struct Renewer(u64, u32);
    impl Transport for Renewer {
        fn send(&mut self, request: &Request) -> Result<Reply, NetworkLost> {
            if !request.target.ends_with("/enrol") {
                return Ok(harness::refuse(503, Code::Busy));
            }
            let enrol: Enrol = read("it", &request.body, limits::MAX_MESSAGE).unwrap();
            let key = enrol.device_key.clone().try_into().unwrap();
            let body = undertone_device::enrolment_body(&enrol);
            verify_proof(undertone_protocol::Label::Enrolment, &key, &body, &enrol.proof).unwrap();
            assert!(enrol.invitation.is_empty() && enrol.subject.is_empty());
            assert_eq!(enrol.certificate, Some(harness::certificate(&key)));
            self.1 += 1;
            let certificate = harness::certificate_until(&key, self.0 + 30 * DAY);
            let body = write(&Enrolled {
                certificate: Some(certificate),
            });
            Ok(Reply {
                status: 200,
                offset: None,
                body,
            })
        }
    }
    let lab = Lab::new();
    let mut device = lab.open();
    let without = device.renew(&mut Renewer(START, 0)).unwrap_err().to_string();
    assert!(without.contains("enrol with an invitation"), "{without}");
    drop(device);
    let mut device = lab.ready();
    for (day, renewals) in [(15, 0), (25, 1), (40, 0)] {
        let now = START + day * DAY;
        lab.clock.0.store(now, Ordering::SeqCst);
        let mut renewer = Renewer(now, 0);
        device.run(&mut renewer, &AlwaysMet, &Stop::default()).unwrap();
        assert_eq!(renewer.1, renewals, "after {day} days");
        assert!(device.status().unwrap().enrolled, "after {day} days");
    }
}

#[test]
fn a_device_that_is_forgotten_leaves_no_key_and_no_text() {
    let lab = Lab::new();
    let device = lab.ready();
    let public = device.public_key();
    device.forget().unwrap();
    let left: Vec<PathBuf> = files(&lab.store())
        .into_iter()
        .chain(files(&lab.keys()))
        .collect();
    assert_eq!(left, Vec::<PathBuf>::new());
    let device = lab.open();
    assert_ne!(device.public_key(), public);
    assert_eq!(device.status().unwrap().training_examples, 0);
}
