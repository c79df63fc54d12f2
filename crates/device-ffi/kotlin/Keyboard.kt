// A keyboard that embeds the device library:
//
//     Keyboard FOLDER SETTINGS INVITATION TEXTS
//
// enrols, adds each line of the file TEXTS, stops a first session, runs sessions until an update was sent, and predicts.

import dev.undertone.device.Condition
import dev.undertone.device.Device
import dev.undertone.device.End
import dev.undertone.device.Failure
import dev.undertone.device.Host
import dev.undertone.device.KeyFailure
import dev.undertone.device.Keys
import dev.undertone.device.Stage
import java.io.File
import java.security.SecureRandom
import kotlin.system.exitProcess

const val MAX_SESSIONS = 300

/** Keys in memory, as an app without a key store of its platform would not keep them. */
class KeysInMemory : Keys {
    private val keys = HashMap<String, ByteArray>()
    private val counters = HashMap<String, ULong>()
    var isBroken = false

    @Synchronized
    override fun key(name: String): ByteArray {
        if (isBroken) throw KeyFailure.Failed("the key store is locked")
        return keys.getOrPut(name) { ByteArray(32).also { SecureRandom().nextBytes(it) } }
    }

    @Synchronized
    override fun counter(name: String): ULong = counters[name] ?: 0uL

    @Synchronized
    override fun raise(name: String, to: ULong) {
        counters[name] = maxOf(to, counters[name] ?: 0uL)
    }

    @Synchronized
    override fun forget() {
        keys.clear()
        counters.clear()
    }
}

/** The display of the app. It stops the session at the first board that it sees. */
class Display : Host {
    val stages = LinkedHashSet<Stage>()
    var device: Device? = null
    var stopsAtBoard = true

    override fun isMet(condition: Condition): Boolean = true

    override fun batteryPercent(): Float? = null

    override fun reached(stage: Stage) {
        stages.add(stage)
        if (stopsAtBoard && stage == Stage.BOARD) device?.stop()
    }
}

fun takePart(device: Device) {
    repeat(MAX_SESSIONS) {
        val outcome = device.run()
        println("session: ${outcome.message}")
        if (outcome.ended == End.REPORTED) {
            println("loaded ${outcome.downBytes} bytes, sent ${outcome.upBytes} bytes")
            return
        }
        Thread.sleep(maxOf(0L, outcome.wakeMs.toLong() - System.currentTimeMillis()))
    }
    error("no update was sent in $MAX_SESSIONS sessions")
}

fun main(arguments: Array<String>) {
    if (arguments.size != 4) {
        System.err.println("usage: Keyboard FOLDER SETTINGS INVITATION TEXTS")
        exitProcess(1)
    }
    val (folder, settingsFile, invitation, texts) = arguments
    val settings = File(settingsFile).readText()
    val display = Display()
    val keys = KeysInMemory()

    keys.isBroken = true
    try {
        Device.open(folder, settings, display, keys).close()
        error("a device opened without a key")
    } catch (failure: Failure.KeyStore) {
        println("refused: ${failure.message}")
    }
    keys.isBroken = false

    val predictor = Device.open(folder, settings, display, keys).use { device ->
        display.device = device
        try {
            Device.open(folder, settings, display, keys).close()
            error("a folder opened twice")
        } catch (failure: Failure.FolderOpen) {
            println("refused: ${failure.message}")
        }
        device.enrol(invitation)
        File(texts).readLines().forEach { device.add(it) }
        val state = device.state()
        println("enrolled: ${state.enrolled}; ${state.withheldExamples} examples withheld")

        device.setUnmet(listOf(Condition.IDLE))
        check(device.run().ended == End.HOST_NOT_READY)
        device.setUnmet(listOf())
        check(device.run().ended == End.STOPPED) { "a callback stopped the session" }
        display.stopsAtBoard = false

        takePart(device)
        println("stages: ${display.stages.joinToString(" ")}")
        for (row in device.participations()) {
            println("took part: round ${row.round}, ${row.progress}, ${row.verdict}")
        }
        val measured = device.evaluate()
        println("evaluation: ${measured.words} words, loss ${measured.loss}")
        display.device = null
        device.predictor()
    }
    predictor.use {
        for (each in it.predict("we walk to the", 3u)) {
            println("next word: ${each.word} ${each.probability}")
        }
    }
}
