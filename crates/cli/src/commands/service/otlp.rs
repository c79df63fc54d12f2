//! Figures and traces for a collector that speaks OTLP over HTTP.
//!
//! PRIVACY: the figures are those of `/metrics`, and nothing else: counts of devices from ten on, in steps of ten. A trace is of an
//! attempt as a whole. No log and no request of a device is traced.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use opentelemetry::metrics::{AsyncInstrument, MeterProvider as _};
use opentelemetry::trace::{Span as _, TraceContextExt as _, Tracer as _, TracerProvider as _};
use opentelemetry::{Context, KeyValue};
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{
    MetricExporter, Protocol, SpanExporter, WithExportConfig as _, WithHttpConfig as _,
};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::metrics::{PeriodicReader, SdkMeterProvider};
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};
use undertone_operate::admin::Reader;
use undertone_operate::host::Host;
use undertone_service::metrics::{AttemptTrace, FigureKind, ShownFigure};

/// The name of the service and of its instruments.
const NAME: &str = "undertone";

/// Max time of a request to the collector.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Max bytes of its answer.
const MAX_ANSWER: u64 = 1 << 20;

/// The time for which figures that were read serve several instruments.
const FRESH: Duration = Duration::from_millis(500);

/// The exporters of a server. Dropping it sends what is left.
pub(crate) struct Telemetry {
    metrics: SdkMeterProvider,
    traces: SdkTracerProvider,
}

impl Telemetry {
    /// Starts to send the figures and traces of a server to the collector at `url`, such as `http://127.0.0.1:4318`.
    pub(crate) fn start(
        url: &str,
        every: Duration,
        process: Option<&str>,
        host: &Host,
    ) -> anyhow::Result<Self> {
        let client = Arc::new(Client::new());
        let at = |path: &str| format!("{}/v1/{path}", url.trim_end_matches('/'));
        let mut resource = Resource::builder().with_service_name(NAME);
        if let Some(process) = process {
            resource = resource.with_attribute(KeyValue::new("service.instance.id", process.to_owned()));
        }
        let resource = resource.build();
        let metrics = MetricExporter::builder()
            .with_http()
            .with_shared_http_client(client.clone())
            .with_protocol(Protocol::HttpBinary)
            .with_timeout(TIMEOUT)
            .with_endpoint(at("metrics"))
            .build()?;
        let reader = PeriodicReader::builder(metrics).with_interval(every).build();
        let metrics = SdkMeterProvider::builder()
            .with_resource(resource.clone())
            .with_reader(reader)
            .build();
        instruments(&metrics, host.figures())?;
        let traces = SpanExporter::builder()
            .with_http()
            .with_shared_http_client(client)
            .with_protocol(Protocol::HttpBinary)
            .with_timeout(TIMEOUT)
            .with_endpoint(at("traces"))
            .build()?;
        let traces = SdkTracerProvider::builder()
            .with_resource(resource)
            .with_batch_exporter(traces)
            .build();
        let tracer = traces.tracer(NAME);
        host.service()
            .metrics()
            .trace_to(move |trace| record(&tracer, trace));
        Ok(Self { metrics, traces })
    }
}

impl Drop for Telemetry {
    fn drop(&mut self) {
        let ended = [self.traces.shutdown(), self.metrics.shutdown()];
        for error in ended.into_iter().filter_map(Result::err) {
            tracing::warn!(%error, "the last figures did not reach the collector");
        }
    }
}

/// The figures of a server, read once for all instruments of a collection.
struct Snapshot {
    reader: Reader,
    last: Mutex<Option<(Instant, Vec<ShownFigure>)>>,
}

impl Snapshot {
    /// Shows a collector the series of one instrument.
    fn observe(&self, name: &str, suffix: &str, instrument: &dyn AsyncInstrument<f64>) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.as_ref().is_none_or(|(read, _)| read.elapsed() > FRESH) {
            match self.reader.read() {
                Ok(figures) => *last = Some((Instant::now(), figures)),
                Err(error) => {
                    tracing::warn!(%error, "the figures for the collector could not be read");
                    return;
                }
            }
        }
        let figures = last.iter().flat_map(|(_, figures)| figures);
        for sample in figures
            .filter(|figure| figure.name == name)
            .flat_map(|figure| &figure.samples)
            .filter(|sample| sample.suffix == suffix)
        {
            let labels: Vec<KeyValue> = sample
                .labels
                .iter()
                .map(|(label, value)| KeyValue::new(*label, value.clone()))
                .collect();
            instrument.observe(sample.value, &labels);
        }
    }
}

/// One instrument per figure of `/metrics`, and two per summary.
fn instruments(provider: &SdkMeterProvider, reader: Reader) -> anyhow::Result<()> {
    let meter = provider.meter(NAME);
    let figures = reader.read()?;
    let snapshot = Arc::new(Snapshot {
        reader,
        last: Mutex::new(None),
    });
    for ShownFigure { name, kind, help, .. } in figures {
        let suffixes: &[&'static str] = match kind {
            FigureKind::Summary => &["_sum", "_count"],
            FigureKind::Counter | FigureKind::Gauge => &[""],
        };
        for &suffix in suffixes {
            let snapshot = snapshot.clone();
            let full = format!("{name}{suffix}");
            let show =
                move |instrument: &dyn AsyncInstrument<f64>| snapshot.observe(name, suffix, instrument);
            match kind {
                FigureKind::Gauge => drop(
                    meter
                        .f64_observable_gauge(full)
                        .with_description(help)
                        .with_callback(show)
                        .build(),
                ),
                FigureKind::Counter | FigureKind::Summary => drop(
                    meter
                        .f64_observable_counter(full)
                        .with_description(help)
                        .with_callback(show)
                        .build(),
                ),
            }
        }
    }
    Ok(())
}

/// An attempt as a span, with its steps below it.
fn record(tracer: &SdkTracer, trace: AttemptTrace) {
    let attributes = [
        KeyValue::new("undertone.population", trace.population),
        KeyValue::new("undertone.task", trace.task),
        KeyValue::new("undertone.round", i64::try_from(trace.round).unwrap_or(i64::MAX)),
        KeyValue::new("undertone.outcome", trace.outcome),
    ];
    let attempt = tracer
        .span_builder("attempt")
        .with_start_time(trace.begun)
        .with_attributes(attributes);
    let attempt = Context::new().with_span(tracer.build_with_context(attempt, &Context::new()));
    for step in trace.steps {
        let builder = tracer.span_builder(step.name).with_start_time(step.begun);
        tracer
            .build_with_context(builder, &attempt)
            .end_with_timestamp(step.ended);
    }
    attempt.span().end_with_timestamp(trace.ended);
}

/// The requests to the collector, by the HTTP client of the whole program.
#[derive(Debug)]
struct Client(ureq::Agent);

impl Client {
    fn new() -> Self {
        let settings = ureq::Agent::config_builder()
            .timeout_global(Some(TIMEOUT))
            .max_redirects(0)
            .http_status_as_error(false)
            .build();
        Self(settings.into())
    }

    fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let (parts, body) = request.into_parts();
        let mut answer = self.0.run(Request::from_parts(parts, &body[..]))?;
        let text = answer.body_mut().with_config().limit(MAX_ANSWER).read_to_vec()?;
        if !answer.status().is_success() {
            tracing::warn!(
                status = answer.status().as_u16(),
                "the collector refused figures or traces"
            );
        }
        let (parts, _) = answer.into_parts();
        Ok(Response::from_parts(parts, text.into()))
    }
}

impl HttpClient for Client {
    fn send_bytes<'life0, 'asynchronous>(
        &'life0 self,
        request: Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'asynchronous>>
    where
        'life0: 'asynchronous,
        Self: 'asynchronous,
    {
        // The exporters call it on threads of their own.
        Box::pin(async move {
            let sent = self.send(request);
            if let Err(error) = &sent {
                tracing::warn!(%error, "the collector cannot be reached");
            }
            sent
        })
    }
}
