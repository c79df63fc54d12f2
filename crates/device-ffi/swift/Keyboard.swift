// A keyboard that embeds the device library:
//
//     Keyboard FOLDER SETTINGS INVITATION TEXTS
//
// enrols, adds each line of the file TEXTS, runs sessions until an update was sent, and predicts.

import Foundation
import Undertone

/// The display of the app.
final class Display: Host {
    func isMet(condition: Condition) -> Bool {
        return true
    }

    func batteryPercent() -> Float? {
        return nil
    }

    func reached(stage: Stage) {
        print("stage: \(stage)")
    }
}

func takePart(device: Device) throws {
    for _ in 0..<300 {
        let outcome = try device.run()
        print("session: \(outcome.message)")
        if outcome.ended == .reported {
            return
        }
        let now = UInt64(Date().timeIntervalSince1970 * 1000)
        if outcome.wakeMs > now {
            Thread.sleep(forTimeInterval: Double(outcome.wakeMs - now) / 1000)
        }
    }
}

@main
struct Keyboard {
    static func main() throws {
        let arguments = CommandLine.arguments
        let settings = try String(contentsOfFile: arguments[2], encoding: .utf8)
        let device = try Device.open(folder: arguments[1], settings: settings, host: Display(), keys: nil)
        try device.enrol(invitation: arguments[3], subject: nil)
        let texts = try String(contentsOfFile: arguments[4], encoding: .utf8)
        for line in texts.split(separator: "\n") {
            try device.add(text: String(line), collectedMs: 0, expiresMs: 0)
        }
        try takePart(device: device)
        for row in try device.participations() {
            print("took part: round \(row.round), \(row.progress)")
        }
        let predictor = try device.predictor(task: nil)
        for each in try predictor.predict(text: "we walk to the", count: 3) {
            print("next word: \(each.word) \(each.probability)")
        }
    }
}
