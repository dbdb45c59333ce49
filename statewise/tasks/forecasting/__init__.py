"""Forecasting: a series of values, and what comes next."""

from statewise.tasks.forecasting.evaluation import ForecastEvaluation as ForecastEvaluation
from statewise.tasks.forecasting.job import ForecastingJob as ForecastingJob
from statewise.tasks.forecasting.run import ForecastingRun as ForecastingRun
from statewise.tasks.forecasting.stationarity import stationarity as stationarity
